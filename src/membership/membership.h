// The set of a router's workers, merged from static addresses, DNS and etcd.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "membership/worker_names.h"
#include "router/worker_state.h"

namespace baton {

// Thread-safe.
class Membership {
 public:
  using Resolve = std::function<absl::StatusOr<std::vector<WorkerAddress>>(const WorkerName& name)>;
  using SetWorkers = std::function<void(WorkerRole role, const std::vector<WorkerAddress>& addresses)>;

  Membership(std::vector<WorkerName> prefill, std::vector<WorkerName> decode, Resolve resolve, SetWorkers set);

  enum class Source { kDns, kEtcd };
  // Resolves the names of `source`, then calls `set` with the workers of all names. If a name fails
  // to resolve, its last addresses stay, so an outage of DNS or etcd removes no worker. A slow
  // source does not delay updates from the other source.
  void Update(Source source);

 private:
  struct Resolved {
    std::vector<WorkerAddress> addresses;
    std::string error;  // of the last attempt; logged once
  };
  struct Group {
    WorkerRole role;
    std::vector<WorkerName> names;
    std::map<WorkerName, Resolved> resolved;
  };
  void Apply(const WorkerName& name, absl::StatusOr<std::vector<WorkerAddress>> found, Resolved& resolved);

  const Resolve resolve_;
  const SetWorkers set_;
  // Each serialises the updates of one source. Locked before mutex_.
  std::mutex dns_mutex_, etcd_mutex_;
  // Guards `resolved` of all groups, and keeps calls of `set` in the order of updates.
  std::mutex mutex_;
  std::vector<Group> groups_;
};

}  // namespace baton
