// Paths of sessions that pause: their KV is evicted last for a while after a turn, for the next one to find it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "kv/radix_tree.h"

namespace baton {

// Until its lease ends a path goes after all that nobody has a claim to, and before what somebody waits for: of leases
// the one that ends first, whose session has paused for longest and is the least likely to go on soon. Then its blocks
// are ordinary again. Nothing is held (KvLeases does that), so leases keep nobody out, however many there are: of one
// path there is one, the latest; that of a session's turn stands beside those of the turns before it.
//
// Not thread-safe. The tree must outlive it.
class SessionLeases {
 public:
  explicit SessionLeases(RadixTree& tree) : tree_(tree) {}

  // Of what is ready of the path, which are the keys of a prompt from the first on.
  void Add(std::span<const BlockKey> path, absl::Time until);
  void EndAll();

  void Tick(absl::Time now);
  absl::Time NextTick() const { return leases_.empty() ? absl::InfiniteFuture() : leases_.begin()->first.first; }

  int64_t size() const { return static_cast<int64_t>(leases_.size()); }

 private:
  using Moment = std::pair<absl::Time, uint64_t>;  // when it ends; unique
  using Leases = std::map<Moment, BlockKey>;       // of the path to this node
  static RadixTree::Place PlaceOf(const Moment& moment);
  void End(Leases::iterator lease);

  RadixTree& tree_;
  Leases leases_;
  absl::flat_hash_map<BlockKey, Leases::iterator> by_node_;
  uint64_t added_ = 0;
};

}  // namespace baton
