// A router's workers, resolved by DNS and etcd while the router runs.
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
    // IP:PORT. Empty for the system's DNS server.
    std::string dns_server;
    std::chrono::milliseconds dns_period;   // between two queries
    std::chrono::milliseconds dns_timeout;  // time limit per name
    EtcdOptions etcd;
    // Selects the etcd server to ask first, and seeds the jitter of retries to etcd.
    uint32_t seed = 0;
  };
  // Starts threads that call `set` after each DNS query and after each change in etcd. A change in
  // etcd does not cause a DNS query. Returns INVALID_ARGUMENT if `options.dns_server` is not an
  // address.
  static absl::StatusOr<std::unique_ptr<LiveMembership>> Start(Options options, Metrics& metrics,
                                                               Membership::SetWorkers set);
  // Stops the threads. `set` is not called after the destructor returns.
  ~LiveMembership();

 private:
  explicit LiveMembership(std::unique_ptr<NameResolver> resolver) : resolver_(std::move(resolver)) {}
  absl::StatusOr<std::vector<WorkerAddress>> Resolve(const WorkerName& name);

  const std::unique_ptr<NameResolver> resolver_;
  std::map<std::string, EtcdWatch> watches_;  // key: prefix
  std::optional<Membership> membership_;
  std::optional<PeriodicTask> dns_;
};

}  // namespace baton
