// Keeps a router's workers as DNS and etcd name them.
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
  // Asks for the names that this source knows, and tells what all names stand for. One that gets no answer stands for
  // what it stood for last: an outage of DNS or etcd costs no worker. What one source takes its time over keeps nobody
  // from updating the other's.
  void Update(Source source);

 private:
  struct Known {
    std::vector<WorkerAddress> addresses;
    std::string error;  // of the last time; logged once
  };
  struct Group {
    WorkerRole role;
    std::vector<WorkerName> names;
    std::map<WorkerName, Known> known;
  };
  void Learn(const WorkerName& name, absl::StatusOr<std::vector<WorkerAddress>> found, Known& known);

  const Resolve resolve_;
  const SetWorkers set_;
  std::mutex dns_mutex_, etcd_mutex_;  // one update by a source at a time; taken before mutex_
  std::mutex mutex_;                   // guards what groups_ know, and that the last word is told last
  std::vector<Group> groups_;
};

}  // namespace baton
