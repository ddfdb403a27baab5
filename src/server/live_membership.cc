#include "server/live_membership.h"

#include <utility>

#include "base/status.h"

namespace baton {

absl::StatusOr<std::unique_ptr<LiveMembership>> LiveMembership::Start(Options options, Membership::SetWorkers set) {
  ASSIGN_OR_RETURN(auto resolver, NameResolver::Make(options.dns_server));
  std::unique_ptr<LiveMembership> live(new LiveMembership(std::move(resolver)));
  for (const auto* names : {&options.prefill, &options.decode}) {
    for (const WorkerName& name : *names) {
      if (name.kind == WorkerName::Kind::kEtcd) live->watches_.try_emplace(name.name, options.etcd, name.name);
    }
  }
  live->membership_.emplace(
      std::move(options.prefill), std::move(options.decode),
      [live = live.get()](const WorkerName& name) { return live->Resolve(name); }, std::move(set));
  live->updates_.emplace(
      options.dns_period, [live = live.get()] { live->membership_->Update(); }, PeriodicTask::First::kAtOnce);
  for (auto& [prefix, watch] : live->watches_) watch.Start([live = live.get()] { live->updates_->Wake(); });
  return live;
}

LiveMembership::~LiveMembership() {
  for (auto& [prefix, watch] : watches_) watch.Stop();  // while updates_ may still be woken
  resolver_->Cancel();
  updates_.reset();
}

absl::StatusOr<std::vector<WorkerAddress>> LiveMembership::Resolve(const WorkerName& name) {
  if (name.kind == WorkerName::Kind::kEtcd) return watches_.at(name.name).Workers();
  return resolver_->Resolve(name);
}

}  // namespace baton
