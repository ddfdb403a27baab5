// Protections of sessions that pause: for some time after a turn's prefill, the session's KV is
// evicted after unprotected blocks. The next turn then probably finds it in the cache.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "kv/radix_tree.h"

namespace baton {

// A session protection protects a path in the tree until its end (Protection::OfSession). The one
// that ends first is the weakest, because its session has paused for the longest time and is the
// least likely to continue soon. Unlike a lease (KvLeases), a session protection does not refer to
// blocks, so it takes no room from requests. A path has at most one, the latest. The protection of
// a turn does not replace those of the session's earlier turns.
//
// Not thread-safe. The tree must outlive it.
class SessionProtections {
 public:
  explicit SessionProtections(RadixTree& tree) : tree_(tree) {}

  // Protects the ready beginning of `path`, the keys of a prompt from the first on. Does nothing if
  // no block of the path is ready.
  void Add(std::span<const BlockKey> path, absl::Time until);
  void EndAll();

  void Tick(absl::Time now);
  absl::Time NextTick() const {
    return protections_.empty() ? absl::InfiniteFuture() : protections_.begin()->first.first;
  }

  int64_t size() const { return static_cast<int64_t>(protections_.size()); }

 private:
  using Moment = std::pair<absl::Time, uint64_t>;  // the protection's end, and a unique number
  using Protections = std::map<Moment, BlockKey>;  // the value is the path's last node
  static Protection ProtectionOf(const Moment& moment) { return Protection::OfSession(moment.first, moment.second); }
  void End(Protections::iterator protection);

  RadixTree& tree_;
  Protections protections_;
  absl::flat_hash_map<BlockKey, Protections::iterator> by_node_;
  uint64_t added_ = 0;
};

}  // namespace baton
