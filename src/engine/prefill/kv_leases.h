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
#include "kv/radix_tree.h"

namespace baton {

// A lease refers to the first blocks of one prompt, which therefore are not evicted. That saves work and nothing rests
// on it: leases give way, the one that would end first before the others, when they hold too much or when a request
// needs the room. What a lease held stays in the cache like any other block.
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
  void EndFirst();  // the one that would end first. REQUIRES: there is one
  void EndAllOf(LeaseHolder holder);
  void EndAll();

  void Tick(absl::Time now);
  absl::Time NextTick() const { return leases_.empty() ? absl::InfiniteFuture() : leases_.begin()->first.first; }

  int64_t blocks() const { return static_cast<int64_t>(holds_.size()); }  // distinct ones that they hold
  void CheckInvariants() const;

 private:
  using Order = std::pair<absl::Time, uint64_t>;  // when it ends; unique
  using Name = std::pair<LeaseHolder, BlockKey>;  // of its last block
  struct Lease {
    Name name;
    BlockTable blocks;
  };
  struct Asked {
    LeaseHolder holder;
    std::vector<BlockKey> path;
    absl::Time until;
  };
  void Grant(const Asked& asked, int64_t spare);
  void End(std::map<Order, Lease>::iterator lease);

  const BlockPool& pool_;
  RadixTree& tree_;
  const int64_t most_;
  std::vector<Asked> asked_;
  std::map<Order, Lease> leases_;
  absl::flat_hash_map<Name, Order> by_name_;
  absl::flat_hash_map<BlockId, int64_t> holds_;  // leases for each block that has any
  uint64_t granted_ = 0;
};

}  // namespace baton
