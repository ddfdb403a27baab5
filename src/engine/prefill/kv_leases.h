// Prompts whose KV stays for a while after their requests are over, for those that go on from there.
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
#include "kv/eviction_rank.h"
#include "kv/radix_tree.h"

namespace baton {

// A lease refers to the first blocks of one prompt, which therefore are not evicted. Leases only
// save work: they give way, the weakest before the others (Protection::OfLease), when they hold too
// much or when a request needs the room. The blocks of a lease that has ended stay in the cache
// like any other block.
//
// Not thread-safe. Pool and tree must outlive it.
class KvLeases {
 public:
  // All leases together hold at most `most` blocks.
  KvLeases(const BlockPool& pool, RadixTree& tree, int64_t most) : pool_(pool), tree_(tree), most_(most) {}

  // Asks for a prompt's blocks: `path` are its keys from the first on.
  void Ask(LeaseHolder holder, std::span<const BlockKey> path, absl::Time until);
  // Grants what was asked for, as far as it is ready, taking at most `spare` blocks that nobody refers to. A holder's
  // leases of the same prompt, or of its beginning, end: the new one takes their place.
  void Grant(int64_t spare);
  void EndFirst();  // ends the weakest lease. REQUIRES: there is one
  void EndAllOf(LeaseHolder holder);
  void EndAll();

  void Tick(absl::Time now);
  absl::Time NextTick() const { return leases_.empty() ? absl::InfiniteFuture() : leases_.begin()->second.until; }

  int64_t blocks() const { return static_cast<int64_t>(holds_.size()); }  // distinct ones that they hold
  void CheckInvariants() const;

 private:
  using Name = std::pair<LeaseHolder, BlockKey>;  // of its last block
  struct Lease {
    Name name;
    absl::Time until;
    BlockTable blocks;
  };
  struct Asked {
    LeaseHolder holder;
    std::vector<BlockKey> path;
    absl::Time until;
  };
  void Grant(const Asked& asked, int64_t spare);
  void End(std::map<Protection, Lease>::iterator lease);

  const BlockPool& pool_;
  RadixTree& tree_;
  const int64_t most_;
  std::vector<Asked> asked_;
  std::map<Protection, Lease> leases_;  // the weakest gives way first
  absl::flat_hash_map<Name, Protection> by_name_;
  absl::flat_hash_map<BlockId, int64_t> holds_;  // leases for each block that has any
  uint64_t granted_ = 0;
};

}  // namespace baton
