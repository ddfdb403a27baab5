// Keeps a router's workers as DNS and etcd name them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/worker_state.h"
#include "server/worker_names.h"

namespace baton {

// Not thread-safe.
class Membership {
 public:
  using Resolve = std::function<absl::StatusOr<std::vector<WorkerAddress>>(const WorkerName& name)>;
  using SetWorkers = std::function<void(WorkerRole role, const std::vector<WorkerAddress>& addresses)>;

  Membership(std::vector<WorkerName> prefill, std::vector<WorkerName> decode, Resolve resolve, SetWorkers set)
      : groups_{{WorkerRole::kPrefill, std::move(prefill), {}}, {WorkerRole::kDecode, std::move(decode), {}}},
        resolve_(std::move(resolve)),
        set_(std::move(set)) {}

  // Asks for all names, and tells what they stand for. One that gets no answer stands for what it stood for last: an
  // outage of DNS or etcd costs no worker.
  void Update();

 private:
  struct Known {
    std::vector<WorkerAddress> addresses;
    std::string error;  // of the last time; logged once
  };
  struct Group {
    WorkerRole role;
    std::vector<WorkerName> names;
    std::map<std::string, Known> known;  // by host and port, service, or prefix
  };

  std::vector<Group> groups_;
  const Resolve resolve_;
  const SetWorkers set_;
};

}  // namespace baton
