// Where the KV of evicted blocks waits to be needed again: host memory and, behind it, a disk.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kv/block_pool.h"
#include "kv/eviction_rank.h"
#include "kv/prefix_key.h"
#include "kv/staging/disk_faults.h"
#include "kv/staging/disk_pace.h"

namespace baton {

// In blocks. What leaves host memory goes to disk, what leaves that is lost; without host memory nothing is kept.
struct StagingOptions {
  int64_t host = 0;
  int64_t disk = 0;
  // A disk that has work and ends none of it for so long is turned off.
  absl::Duration disk_patience = absl::Seconds(10);
};

// A block's bytes on their way between the pool's slab and a slot of host memory.
struct StagedCopy {
  BlockId block;
  int64_t slot = 0;
};

// What a step does before its batch runs: first all copies out of the slab, then all copies into it.
struct StagedCopies {
  std::vector<StagedCopy> out, in;
};

// A block's bytes on their way between a slot of host memory and a slot of the disk.
struct DiskTransfer {
  bool read = false;  // to host memory; else from there
  BlockKey key;
  int64_t host_slot = 0, disk_slot = 0;
};

// Says what is where and what is moved; the bytes are the shell's. Keys name contents, so a block
// that comes back is the one that was evicted, and tenants share here what they share in the tree.
//
// Both tiers evict the block of the least EvictionRank, except blocks that a prompt holds, which
// are expected soon. A copy of a block that is back in the pool counts as used before all others,
// for the pool will bring it again. What host memory would evict next is written to disk ahead of
// time, so that it has a copy there; what the disk is too slow for is lost. Only the request whose
// KV is read waits for a disk.
//
// Nothing rests on it: whatever is lost, fails, or would take longer than computing it again, is
// computed. Not thread-safe.
class KvStaging {
 public:
  explicit KvStaging(StagingOptions options);
  bool enabled() const { return options_.host > 0; }
  bool has_disk() const { return options_.disk > 0; }

  // The pool is about to give `block` away, whose content `key` names: it is copied out, if there is room.
  void Keep(const BlockKey& key, BlockId block);

  // How many of these keys, from the first on, are here or will be read, as far as that pays and there is room. The
  // caller holds them until Release. Where it does not pay, a block is read now and then that nobody waits for.
  int64_t Hold(std::span<const BlockKey> keys);
  // REQUIRES: the caller holds them.
  void Release(std::span<const BlockKey> keys);
  // It is being read from disk.
  bool IsComing(const BlockKey& key) const;

  // It is in host memory.
  bool IsHere(const BlockKey& key) const;
  // False: with one more brought back the step would copy, in and out, for longer than computing `step_blocks` takes,
  // as measured. One block may always come.
  bool MayCopyIn(int64_t step_blocks) const;
  // It stays there as long as the step. CopyIn may follow. REQUIRES: IsHere.
  void UseInStep(const BlockKey& key);
  enum class Tier { kHost, kDisk };
  // It is copied to `block`. Where it came from, the first time that it is used since.
  Tier CopyIn(const BlockKey& key, BlockId block);
  // Of the step that is planned or runs.
  const StagedCopies& copies() const { return copies_; }
  // They are done, and took so long. REQUIRES: there are any.
  void CopiesDone(absl::Duration took);
  // The step is over, its copies done; `kept`: what it copied in stays in the pool.
  void EndStep(bool kept);

  // What computing a block's tokens takes; zero: not known. A read that would take longer is not begun.
  void SetComputeTime(absl::Duration time);
  // Nothing is read, but to see whether it pays again.
  bool disk_is_slow() const { return pace_.slow(); }
  // To be begun now, in any order; the end of each is told by OnTransferred.
  std::vector<DiskTransfer> TakeTransfers(absl::Time now);
  // DATA_LOSS: the bytes are not those that were written; RESOURCE_EXHAUSTED: there was no space to write them.
  // A block whose transfer failed is not on disk any more. DiskFaults decides what follows for the disk. `took`: on the
  // disk, perhaps beside other transfers.
  void OnTransferred(const DiskTransfer& transfer, const absl::Status& status, absl::Duration took, absl::Time now);
  void Tick(absl::Time now);
  absl::Time NextTick() const { return faults_.NextTick(); }
  // The disk is off until the process is restarted.
  bool disk_is_off() const { return faults_.is_off(); }
  // As DiskFaults::status.
  const absl::Status& disk_status() const { return faults_.status(); }

  struct Counts {
    int64_t host = 0, disk = 0;  // blocks there
    int64_t failures = 0;        // blocks that were to be read and could not, since the start
    int64_t not_read = 0;        // blocks that a prompt found on disk where reading did not pay, since the start
    int64_t disk_off = 0;        // 1 once the disk is off, until the process is restarted
    int64_t held = 0;
    int64_t reading = 0, writing = 0;
  };
  Counts counts() const;
  // CHECKs that everything agrees. REQUIRES: no step is planned or runs.
  void CheckInvariants() const;

 private:
  static constexpr int64_t kNone = -1;
  struct Entry {
    BlockKey key;
    int64_t host = kNone, disk = kNone;     // slots
    bool reading = false, writing = false;  // so one of the slots has no content yet
    bool in_pool = false;                   // it was brought back there
    bool was_read = false;                  // from disk, and was not used since
    int32_t holds = 0;
    int32_t in_steps = 0;
    int64_t used = 0;  // unique
  };
  using Order = std::map<EvictionRank, Entry*>;

  Entry* EntryOf(const BlockKey& key) const;  // null: none
  Entry& Require(const BlockKey& key) const;
  // All changes of an entry are made by this, which keeps the orders and forgets what is nowhere.
  template <typename Function>
  void Change(Entry& entry, Function change);
  static bool MayLeaveHost(const Entry& entry);
  static bool HasCopy(const Entry& entry) { return entry.disk != kNone || entry.in_pool; }
  static bool MayLeaveDisk(const Entry& entry);
  static EvictionRank HostRank(const Entry& entry) {
    return EvictionRank({.has_copy = HasCopy(entry), .last_use = entry.used});
  }
  static EvictionRank DiskRank(const Entry& entry) { return EvictionRank({.last_use = entry.used}); }
  int64_t TakeHostSlot();  // kNone: all are in use
  int64_t TakeDiskSlot();
  struct Found {
    int64_t blocks = 0, before_reads = 0;  // before the first that is on disk only
    int64_t reads = 0;                     // blocks on disk only
  };
  Found Find(std::span<const BlockKey> keys) const;
  bool BeginRead(Entry& entry);
  void PlanWrites();
  void LeaveDisk();  // once it is off: forgets what is there

  const StagingOptions options_;
  absl::flat_hash_map<BlockKey, std::unique_ptr<Entry>> entries_;
  std::vector<int64_t> free_host_, free_disk_;
  // Blocks that may leave host memory: those with a copy elsewhere, which come first, and those
  // that would be lost.
  Order host_order_;
  int64_t host_copies_ = 0;  // blocks of host_order_ that have a copy
  Order disk_order_;         // blocks that may leave the disk
  int64_t hottest_ = 0, coldest_ = 0;
  int64_t held_ = 0;  // entries with holds
  int64_t reading_ = 0, writing_ = 0, failures_ = 0, not_read_ = 0;
  StagedCopies copies_;
  std::vector<Entry*> in_step_, copied_in_;
  std::vector<DiskTransfer> transfers_;      // not begun yet
  absl::Duration compute_time_, copy_time_;  // of a block; zero: not known
  DiskPace pace_;
  DiskFaults faults_;
};

}  // namespace baton
