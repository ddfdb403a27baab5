#include "engine/prefill/session_leases.h"

namespace baton {

void SessionLeases::Add(std::span<const BlockKey> path, absl::Time until) {
  const int64_t ready = tree_.ReadyPrefix(path);
  if (ready == 0) return;
  const BlockKey& node = path[static_cast<size_t>(ready) - 1];
  if (const auto earlier = by_node_.find(node); earlier != by_node_.end()) End(earlier->second);
  const auto lease = leases_.emplace(Moment{until, ++added_}, node).first;
  by_node_.emplace(node, lease);
  tree_.Protect(node, ProtectionOf(lease->first));
}

void SessionLeases::End(Leases::iterator lease) {
  tree_.Unprotect(ProtectionOf(lease->first));
  by_node_.erase(lease->second);
  leases_.erase(lease);
}

void SessionLeases::EndAll() {
  while (!leases_.empty()) End(leases_.begin());
}

void SessionLeases::Tick(absl::Time now) {
  while (NextTick() <= now) End(leases_.begin());
}

}  // namespace baton
