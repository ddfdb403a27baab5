#include "membership/live_membership.h"

#include <utility>

#include "base/status.h"

namespace baton {

absl::StatusOr<std::unique_ptr<LiveMembership>> LiveMembership::Start(Options options, Metrics& metrics,
                                                                      Membership::SetWorkers set) {
  ASSIGN_OR_RETURN(auto resolver, NameResolver::Make(options.dns_server, options.dns_timeout));
  std::unique_ptr<LiveMembership> live(new LiveMembership(std::move(resolver)));
  for (const auto* names : {&options.prefill, &options.decode}) {
    for (const WorkerName& name : *names) {
      if (name.kind != WorkerName::Kind::kEtcd) continue;
      live->watches_.try_emplace(name.name, options.etcd, name.name, options.seed, metrics);
    }
  }
  live->membership_.emplace(
      std::move(options.prefill), std::move(options.decode),
      [live = live.get()](const WorkerName& name) { return live->Resolve(name); }, std::move(set));
  const auto update = [membership = &*live->membership_](Membership::Source source) { membership->Update(source); };
  live->dns_.emplace(
      options.dns_period, [update] { update(Membership::Source::kDns); }, PeriodicTask::First::kAtOnce);
  for (auto& [prefix, watch] : live->watches_) watch.Start([update] { update(Membership::Source::kEtcd); });
  return live;
}

LiveMembership::~LiveMembership() {
  for (auto& [prefix, watch] : watches_) watch.Stop();
  resolver_->Cancel();
  dns_.reset();
}

absl::StatusOr<std::vector<WorkerAddress>> LiveMembership::Resolve(const WorkerName& name) {
  if (name.kind == WorkerName::Kind::kEtcd) return watches_.at(name.name).Workers();
  return resolver_->Resolve(name);
}

}  // namespace baton
