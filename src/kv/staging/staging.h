// The staging tiers of evicted KV blocks: host memory and, behind it, a disk.
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

// The sizes of the tiers, in blocks. A disk needs host memory in front of it.
struct StagingOptions {
  int64_t host = 0;
  int64_t disk = 0;
  // The disk is turned off if it has work for so long without ending any of it.
  absl::Duration disk_patience = absl::Seconds(10);
};

// A copy of a block's bytes between the pool's slab and a slot of host memory.
struct StagedCopy {
  BlockId block;
  int64_t slot = 0;
};

// The copies of a step, which run before its batch. All copies out of the slab come first, then all
// copies into it.
struct StagedCopies {
  std::vector<StagedCopy> out, in;
};

// A transfer of a block's bytes between a slot of host memory and a slot of the disk.
struct DiskTransfer {
  bool read = false;  // true: from disk to host memory; false: from host memory to disk
  BlockKey key;
  int64_t host_slot = 0, disk_slot = 0;
};

// The index of the tiers. It decides where blocks are and which bytes move. Its caller, the worker,
// moves the bytes (StagingStore). A key names the content of a block, so cache domains are
// separated here as they are in the radix tree.
//
// Both tiers evict the block with the least EvictionRank, except blocks that a prompt holds. The
// blocks that host memory would evict next are written to disk in advance. If the disk is too slow
// for that, they are lost. Only a request whose own KV is read from disk waits for the disk.
//
// Staging is optional for correctness. A worker computes every block that is lost, that fails to
// arrive, or that would take longer to read than to compute. docs/design/eviction.md has the
// reasons.
//
// Not thread-safe.
class KvStaging {
 public:
  explicit KvStaging(StagingOptions options);
  bool enabled() const { return options_.host > 0; }
  bool has_disk() const { return options_.disk > 0; }

  // Plans a copy of `block` to host memory, if that has space. The pool is about to reuse the
  // block, whose content `key` names.
  void Keep(const BlockKey& key, BlockId block);

  // Holds a prefix of `keys` that is staged, and returns its length. Held blocks are not evicted
  // until Release. The prefix is as long as possible within these limits:
  // - Blocks that are only on disk are included, and read, if host memory has space and DiskPace
  //   expects that the read is faster than computing. Otherwise Hold may read one block as a probe,
  //   for which no request waits.
  // - All held blocks together take at most half of host memory.
  int64_t Hold(std::span<const BlockKey> keys);
  // Ends Hold for these keys. REQUIRES: the caller holds them.
  void Release(std::span<const BlockKey> keys);
  // Returns true if the block is being read from disk.
  bool IsComing(const BlockKey& key) const;

  // Returns true if the block is in host memory.
  bool IsHere(const BlockKey& key) const;
  // Returns false if, with one more CopyIn, all copies of the step would take longer than computing
  // `step_blocks` blocks. The times are measured. The first CopyIn of a step is always allowed.
  bool MayCopyIn(int64_t step_blocks) const;
  // Keeps the block in host memory until EndStep. REQUIRES: IsHere(key).
  void UseInStep(const BlockKey& key);
  enum class Tier { kHost, kDisk };
  // Plans a copy of the staged block into `block`. Returns kDisk if the block was read from disk
  // and was not used since, and kHost otherwise. REQUIRES: UseInStep(key) was called in this step.
  Tier CopyIn(const BlockKey& key, BlockId block);
  // Returns the copies of the step that is planned or running.
  const StagedCopies& copies() const { return copies_; }
  // Records that the copies are complete and took `took`. REQUIRES: the step has copies.
  void CopiesDone(absl::Duration took);
  // Ends the step, after its copies are complete. `kept` is true if the blocks that it copied in
  // stay in the pool.
  void EndStep(bool kept);

  // Sets the time to compute the tokens of one block. Zero means unknown. A read that would take
  // longer does not begin.
  void SetComputeTime(absl::Duration time);
  // Returns true if the disk is too slow, so that only probes are read.
  bool disk_is_slow() const { return pace_.slow(); }
  // Returns the transfers that the caller must begin now, in any order. The caller reports the end
  // of each by OnTransferred.
  std::vector<DiskTransfer> TakeTransfers(absl::Time now);
  // Records the end of a transfer. `took` is its time on the disk, possibly in parallel with other
  // transfers. After a failure, the block is no longer on disk, and DiskFaults decides about the
  // disk. A read fails with DATA_LOSS if the bytes are not those that were written. A write fails
  // with RESOURCE_EXHAUSTED if there is no space.
  void OnTransferred(const DiskTransfer& transfer, const absl::Status& status, absl::Duration took, absl::Time now);
  void Tick(absl::Time now);
  absl::Time NextTick() const { return faults_.NextTick(); }
  // Returns true once the disk is off, until the process restarts.
  bool disk_is_off() const { return faults_.is_off(); }
  // Returns DiskFaults::status.
  const absl::Status& disk_status() const { return faults_.status(); }

  struct Counts {
    int64_t host = 0, disk = 0;  // slots in use
    int64_t failures = 0;        // reads that failed, since the start
    int64_t not_read = 0;        // blocks found on disk and not worth reading, since the start
    int64_t disk_off = 0;        // 1 once the disk is off, until the process restarts
    int64_t held = 0;            // blocks that prompts hold
    int64_t reading = 0, writing = 0;
  };
  Counts counts() const;
  // CHECKs that entries, slots, orders and counts agree. REQUIRES: no step is planned or running.
  void CheckInvariants() const;

 private:
  static constexpr int64_t kNone = -1;
  struct Entry {
    BlockKey key;
    int64_t host = kNone, disk = kNone;     // slots
    bool reading = false, writing = false;  // true: the target slot has no content yet
    bool in_pool = false;                   // copied back to the pool
    bool was_read = false;                  // read from disk and not used since
    int32_t holds = 0;
    int32_t in_steps = 0;
    int64_t used = 0;  // number of the last use, unique
  };
  using Order = std::map<EvictionRank, Entry*>;

  Entry* EntryOf(const BlockKey& key) const;  // null if there is none
  Entry& Require(const BlockKey& key) const;
  // Makes every change of an entry. It updates the orders and removes an entry that is in no tier
  // and not held.
  template <typename Function>
  void Change(Entry& entry, Function change);
  static bool MayLeaveHost(const Entry& entry);
  static bool HasCopy(const Entry& entry) { return entry.disk != kNone || entry.in_pool; }
  static bool MayLeaveDisk(const Entry& entry);
  static EvictionRank HostRank(const Entry& entry) {
    return EvictionRank({.has_copy = HasCopy(entry), .last_use = entry.used});
  }
  static EvictionRank DiskRank(const Entry& entry) { return EvictionRank({.last_use = entry.used}); }
  // Return a free slot, evicting a block if necessary. Return kNone if no block may be evicted.
  int64_t TakeHostSlot();
  int64_t TakeDiskSlot();
  // The staged prefix of some keys.
  struct Found {
    // The length of the prefix, and of its part before the first block that is only on disk.
    int64_t blocks = 0, before_reads = 0;
    int64_t reads = 0;  // the number of blocks that are only on disk
  };
  Found Find(std::span<const BlockKey> keys) const;
  bool BeginRead(Entry& entry);
  void PlanWrites();
  // Removes all blocks on disk from the index, once the disk is off.
  void LeaveDisk();

  const StagingOptions options_;
  absl::flat_hash_map<BlockKey, std::unique_ptr<Entry>> entries_;
  std::vector<int64_t> free_host_, free_disk_;
  // The blocks that may leave host memory. Blocks with a copy elsewhere come first.
  Order host_order_;
  int64_t host_copies_ = 0;  // number of blocks in host_order_ with a copy
  Order disk_order_;         // the blocks that may leave the disk
  // The greatest and the least value of Entry::used so far.
  int64_t hottest_ = 0, coldest_ = 0;
  int64_t held_ = 0;  // number of entries with holds
  int64_t reading_ = 0, writing_ = 0, failures_ = 0, not_read_ = 0;
  StagedCopies copies_;
  std::vector<Entry*> in_step_, copied_in_;
  std::vector<DiskTransfer> transfers_;      // planned, not yet returned by TakeTransfers
  absl::Duration compute_time_, copy_time_;  // per block; zero: unknown
  DiskPace pace_;
  DiskFaults faults_;
};

}  // namespace baton
