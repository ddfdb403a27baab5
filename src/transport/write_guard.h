// Who may write where in a worker's slab, of those that ask: for memory that no peer reaches by itself.
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
#include "transport/write_right.h"

namespace baton {

// Rights are granted and revoked by the hand-off's receiving side, and used by peers' messages. Thread-safe.
class WriteGuard {
 public:
  // The slab must outlive it.
  WriteGuard(const Slab& slab, const KvLayout& layout) : slab_(slab), layout_(layout) {}

  // A right to write to these blocks, and to none else, until it is revoked. Its key is 128 bits of the system's random
  // source.
  WriteRight Grant(std::span<const BlockId> blocks);
  // When it returns, nothing is written under the right any more: it waits for what is being copied, a message's bytes.
  // Harmless if it is revoked already.
  void Revoke(uint64_t right);

  // Copies `bytes`, of which each copy's source_offset is a place in it, to the slab: all of them or none.
  // PERMISSION_DENIED: the right is not in force, or a copy leaves its blocks. INVALID_ARGUMENT: the copies are not of
  // these bytes or not of whole planes. Both are counted as refused, but for what shows the key of a right that ended
  // lately: its writer could not know yet. Else the slab's device failed.
  absl::Status Write(const WriteRight& right, std::span<const BlockCopy> copies, std::string_view bytes);

  // Counts who is refused for showing no key, logs `why`, not more than one line each ten seconds, and gives it back.
  absl::Status Refuse(const absl::Status& why);

  // In constant time.
  static bool Same(const WriteKey& a, const WriteKey& b);

  int64_t refused() const;  // since the start
  int64_t rights() const;   // in force
  void CheckInvariants() const;

 private:
  struct Right {
    WriteKey key{};
    absl::flat_hash_set<BlockId> blocks;
    int64_t writing = 0;  // calls of Write that copy
  };

  // All with the lock held.
  absl::Status Check(const WriteRight& right, std::span<const BlockCopy> copies, std::string_view bytes) const;
  absl::Status CheckPlace(const Right& right, const BlockCopy& copy) const;
  absl::Status CountRefused(const absl::Status& why);
  bool EndedLately(const WriteRight& right) const;

  absl::Status Copy(std::span<const BlockCopy> copies, std::string_view bytes) const;

  const Slab slab_;
  const KvLayout layout_;
  LogLimit log_limit_{};
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable written_;
  uint64_t granted_ = 0;
  std::map<uint64_t, std::shared_ptr<Right>> rights_;  // by id
  std::deque<WriteRight> ended_;                       // revoked lately: the oldest first, few
  int64_t refused_ = 0;
};

}  // namespace baton
