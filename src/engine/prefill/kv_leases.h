// Leases that keep the KV of prompts after their requests are over, for requests that continue
// these prompts.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "kv/block_table.h"
#include "kv/radix_tree.h"

namespace baton {

// A lease refers to the first blocks of one prompt, so these blocks cannot be evicted. Leases only
// save work. When they hold too many blocks, or when a closed prompt needs the room, leases end
// early, in order of their ends. The blocks of a lease that has ended stay in the cache like other
// blocks.
//
// Not thread-safe. The pool and the tree must outlive it.
class KvLeases {
 public:
  // `most` is the upper bound on the blocks of all leases together.
  KvLeases(const BlockPool& pool, RadixTree& tree, int64_t most) : pool_(pool), tree_(tree), most_(most) {}

  // Asks for a lease of a prompt's blocks. The next Grant grants it. `path` is the prompt's keys
  // from the first on.
  void Ask(LeaseHolder holder, std::span<const BlockKey> path, absl::Time until);
  // Grants all leases that were asked for. A lease covers the ready beginning of its path. All new
  // leases together take at most `budget` blocks that had no reference. A new lease replaces its
  // holder's leases of the same prompt or of a beginning of it.
  void Grant(int64_t budget);
  // Ends the lease that would end first. REQUIRES: blocks() > 0.
  void EndFirst();
  void EndAllOf(LeaseHolder holder);
  void EndAll();

  void Tick(absl::Time now);
  absl::Time NextTick() const { return leases_.empty() ? absl::InfiniteFuture() : leases_.begin()->first.first; }

  // Returns how many distinct blocks the leases hold.
  int64_t blocks() const { return static_cast<int64_t>(holds_.size()); }
  void CheckInvariants() const;

 private:
  using Name = std::pair<LeaseHolder, BlockKey>;   // the key is that of the lease's last block
  using Moment = std::pair<absl::Time, uint64_t>;  // the lease's end, and a unique number
  struct Lease {
    Name name;
    BlockTable blocks;
  };
  using Leases = std::map<Moment, Lease>;
  struct Asked {
    LeaseHolder holder;
    std::vector<BlockKey> path;
    absl::Time until;
  };
  void Grant(const Asked& asked, int64_t budget);
  void End(Leases::iterator lease);

  const BlockPool& pool_;
  RadixTree& tree_;
  const int64_t most_;
  std::vector<Asked> asked_;
  Leases leases_;
  absl::flat_hash_map<Name, Moment> by_name_;
  absl::flat_hash_map<BlockId, int64_t> holds_;  // number of leases of each leased block
  uint64_t granted_ = 0;
};

}  // namespace baton
