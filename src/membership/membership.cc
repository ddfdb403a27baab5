#include "membership/membership.h"

#include <algorithm>
#include <utility>

#include "base/logging.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton {
namespace {

using NameKind = WorkerName::Kind;

bool ResolvesBy(Membership::Source source, const WorkerName& name) {
  // A static address needs no source.
  if (name.kind == NameKind::kAddress) return false;
  return (name.kind == NameKind::kEtcd) == (source == Membership::Source::kEtcd);
}

}  // namespace

Membership::Membership(std::vector<WorkerName> prefill, std::vector<WorkerName> decode, Resolve resolve, SetWorkers set)
    : resolve_(std::move(resolve)), set_(std::move(set)) {
  groups_.push_back({WorkerRole::kPrefill, std::move(prefill), {}});
  groups_.push_back({WorkerRole::kDecode, std::move(decode), {}});
  for (Group& group : groups_) {
    for (const WorkerName& name : group.names) {
      if (name.kind == NameKind::kAddress) group.resolved[name].addresses = {name.name};
    }
  }
}

void Membership::Update(Source source) {
  const std::lock_guard updating(source == Source::kDns ? dns_mutex_ : etcd_mutex_);
  for (Group& group : groups_) {
    std::vector<std::pair<WorkerName, absl::StatusOr<std::vector<WorkerAddress>>>> answers;
    for (const WorkerName& name : group.names) {
      if (ResolvesBy(source, name)) answers.emplace_back(name, resolve_(name));
    }
    const std::lock_guard lock(mutex_);
    for (auto& [name, found] : answers) Apply(name, std::move(found), group.resolved[name]);
    std::vector<WorkerAddress> all;
    for (const WorkerName& name : group.names) {
      for (const WorkerAddress& address : group.resolved[name].addresses) {
        if (std::find(all.begin(), all.end(), address) == all.end()) all.push_back(address);
      }
    }
    set_(group.role, all);
  }
}

void Membership::Apply(const WorkerName& name, absl::StatusOr<std::vector<WorkerAddress>> found, Resolved& resolved) {
  const std::string error = found.ok() ? "" : std::string(Message(found.status()));
  if (found.ok()) resolved.addresses = *std::move(found);
  if (error == std::exchange(resolved.error, error)) return;
  if (!error.empty()) {
    spdlog::warn("{}; keeping its {} workers", error, resolved.addresses.size());
  } else {
    const std::string text = name.port.empty() ? name.name : StrCat(name.name, ":", name.port);
    spdlog::info("{} resolves again, to {} workers", text, resolved.addresses.size());
  }
}

}  // namespace baton
