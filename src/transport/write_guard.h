// The guard of a worker's slab (`--guard-kv`). It decides which peer may write to which blocks.
// Peers cannot access guarded memory directly and send their writes as messages.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "base/log_limit.h"
#include "kv/block_layout.h"
#include "kv/slab.h"
#include "transport/write_key.h"

namespace baton {

// The receiving side of the hand-off grants and revokes write keys. Messages from peers use them.
// Thread-safe.
class WriteGuard {
 public:
  // The slab's memory must outlive the guard.
  WriteGuard(const Slab& slab, const KvLayout& layout) : slab_(slab), layout_(layout) {}

  // Grants a write key for these blocks, and for no other blocks, until Revoke. It is 128 bits of
  // the system's random source. REQUIRES: no other valid write key covers one of the blocks.
  WriteKey Grant(std::span<const BlockId> blocks);
  // Revokes a write key, and waits until the running writes with it are complete. Does nothing if
  // the write key is not valid.
  void Revoke(uint64_t write_key);

  // Copies parts of `bytes` to the slab. The source_offset of a copy is an offset in `bytes`.
  // Either all copies are made or, after a check that fails, none:
  // - PERMISSION_DENIED: the write key is not valid, or a copy leaves its blocks.
  // - INVALID_ARGUMENT: a copy leaves `bytes` or is not whole planes.
  //
  // Both count as refused. A write with a recently revoked write key does not count, because its
  // writer may not have learned of the end. Other errors mean that the slab's device failed.
  absl::Status Write(const WriteKey& write_key, std::span<const BlockCopy> copies, std::string_view bytes);

  // Counts a refusal outside of Write, logs `why` and returns it. Logs at most one line in ten
  // seconds.
  absl::Status Refuse(const absl::Status& why);

  // Compares two keys in constant time.
  static bool Same(const WriteKeyBits& a, const WriteKeyBits& b);

  int64_t refused() const;     // refusals since the start
  int64_t valid_keys() const;  // valid write keys
  void CheckInvariants() const;

 private:
  struct ValidKey {
    WriteKeyBits bits{};
    absl::flat_hash_set<BlockId> blocks;
    int64_t writing = 0;  // running calls of Write with this write key
  };

  // The next four methods require that the caller holds mutex_.
  absl::Status Check(const WriteKey& write_key, std::span<const BlockCopy> copies, std::string_view bytes) const;
  absl::Status CheckPlace(const ValidKey& write_key, const BlockCopy& copy) const;
  absl::Status CountRefused(const absl::Status& why);
  bool EndedRecently(const WriteKey& write_key) const;

  absl::Status Copy(std::span<const BlockCopy> copies, std::string_view bytes) const;

  const Slab slab_;
  const KvLayout layout_;
  LogLimit log_limit_{};
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable written_;
  uint64_t granted_ = 0;
  std::map<uint64_t, std::shared_ptr<ValidKey>> valid_keys_;  // by id
  std::deque<WriteKey> recently_revoked_;                     // oldest first
  int64_t refused_ = 0;
};

}  // namespace baton
