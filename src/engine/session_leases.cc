#include "engine/session_leases.h"

#include <limits>

namespace baton {

// After everybody's who waits. The place of what ends sooner is the later one.
RadixTree::Place SessionLeases::PlaceOf(const Lease& lease) {
  const auto& [until, number] = lease;
  return {std::numeric_limits<int64_t>::max(), absl::UnixEpoch() - (until - absl::UnixEpoch()), number};
}

void SessionLeases::Add(std::span<const BlockKey> path, absl::Time until) {
  const int64_t ready = tree_.ReadyPrefix(path);
  if (ready == 0) return;
  const auto lease = leases_.insert({until, ++added_}).first;
  tree_.Spare(path[static_cast<size_t>(ready) - 1], PlaceOf(*lease));
}

void SessionLeases::EndAll() {
  for (const Lease& lease : leases_) tree_.SpareNoMore(PlaceOf(lease));
  leases_.clear();
}

void SessionLeases::Tick(absl::Time now) {
  while (NextTick() <= now) {
    tree_.SpareNoMore(PlaceOf(*leases_.begin()));
    leases_.erase(leases_.begin());
  }
}

}  // namespace baton
