#include "engine/prefill/session_protections.h"

namespace baton {

void SessionProtections::Add(std::span<const BlockKey> path, absl::Time until) {
  const int64_t ready = tree_.ReadyPrefix(path);
  if (ready == 0) return;
  const BlockKey& node = path[static_cast<size_t>(ready) - 1];
  if (const auto earlier = by_node_.find(node); earlier != by_node_.end()) End(earlier->second);
  const auto protection = protections_.emplace(Moment{until, ++added_}, node).first;
  by_node_.emplace(node, protection);
  tree_.Protect(node, ProtectionOf(protection->first));
}

void SessionProtections::End(Protections::iterator protection) {
  tree_.Unprotect(ProtectionOf(protection->first));
  by_node_.erase(protection->second);
  protections_.erase(protection);
}

void SessionProtections::EndAll() {
  while (!protections_.empty()) End(protections_.begin());
}

void SessionProtections::Tick(absl::Time now) {
  while (NextTick() <= now) End(protections_.begin());
}

}  // namespace baton
