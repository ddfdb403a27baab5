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

// A lease protects a path until it ends (Protection::OfSession). The session whose lease ends first
// has paused for longest, so it is the least likely to go on soon. A lease holds no blocks, as
// KvLeases does, so leases keep no request out, however many there are. A path has one lease, the
// latest; the lease of a session's turn stands beside those of the turns before it.
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
  static Protection ProtectionOf(const Moment& moment) { return Protection::OfSession(moment.first, moment.second); }
  void End(Leases::iterator lease);

  RadixTree& tree_;
  Leases leases_;
  absl::flat_hash_map<BlockKey, Leases::iterator> by_node_;
  uint64_t added_ = 0;
};

}  // namespace baton
