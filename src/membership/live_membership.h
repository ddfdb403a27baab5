// A router's workers as DNS and etcd name them while it runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/periodic_task.h"
#include "membership/etcd_watch.h"
#include "membership/membership.h"
#include "membership/name_resolver.h"

namespace baton {

class LiveMembership {
 public:
  struct Options {
    std::vector<WorkerName> prefill;
    std::vector<WorkerName> decode;
    std::string dns_server;                  // IP:PORT; empty: the system's
    std::chrono::milliseconds dns_period;    // between two questions
    std::chrono::milliseconds dns_patience;  // for the answer about one name
    EtcdOptions etcd;
    uint32_t seed = 0;  // of which of etcd's servers is asked first, and of when those are asked again that failed
  };
  // From now on calls `set`, on threads of its own, whenever DNS was asked and whenever etcd changes, for which DNS is
  // not asked.
  // INVALID_ARGUMENT: the address of the DNS server.
  static absl::StatusOr<std::unique_ptr<LiveMembership>> Start(Options options, Metrics& metrics,
                                                               Membership::SetWorkers set);
  // `set` is called no more.
  ~LiveMembership();

 private:
  explicit LiveMembership(std::unique_ptr<NameResolver> resolver) : resolver_(std::move(resolver)) {}
  absl::StatusOr<std::vector<WorkerAddress>> Resolve(const WorkerName& name);

  const std::unique_ptr<NameResolver> resolver_;
  std::map<std::string, EtcdWatch> watches_;  // by prefix
  std::optional<Membership> membership_;
  std::optional<PeriodicTask> dns_;
};

}  // namespace baton
