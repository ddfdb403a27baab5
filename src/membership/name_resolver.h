// DNS lookup of workers (c-ares).
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "membership/worker_names.h"

struct ares_channeldata;

namespace baton {

// Not thread-safe, except for Cancel.
class NameResolver {
 public:
  // `server` is the IP:PORT of the DNS server, or empty for the system's server. `timeout` is the
  // time limit for one name. Returns INVALID_ARGUMENT if `server` is malformed. Returns UNAVAILABLE
  // if c-ares cannot start.
  static absl::StatusOr<std::unique_ptr<NameResolver>> Make(const std::string& server,
                                                            std::chrono::milliseconds timeout);
  ~NameResolver();
  NameResolver(const NameResolver&) = delete;
  NameResolver& operator=(const NameResolver&) = delete;

  // Returns the workers of `name`, sorted and without duplicates. Returns an empty list if DNS
  // answers that the name has no records. Blocks for at most `timeout` per query. A host without
  // an IPv4 address takes two queries. Returns UNAVAILABLE if no valid answer arrives or the answer
  // has more than kMaxWorkers addresses.
  absl::StatusOr<std::vector<WorkerAddress>> Resolve(const WorkerName& name);
  // Makes a running Resolve fail with UNAVAILABLE within 0.1 s, and later ones at once.
  // Thread-safe.
  void Cancel() { cancelled_ = true; }

 private:
  NameResolver(ares_channeldata* channel, std::chrono::milliseconds timeout) : channel_(channel), timeout_(timeout) {}
  absl::StatusOr<std::vector<WorkerAddress>> ResolveHost(const WorkerName& name, int family);
  absl::StatusOr<std::vector<WorkerAddress>> ResolveService(const WorkerName& name);
  void Wait(const bool& done);

  ares_channeldata* const channel_;
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace baton
