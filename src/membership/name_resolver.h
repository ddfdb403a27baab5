// Asks DNS which workers there are (c-ares).
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

// Not thread-safe, but for Cancel.
class NameResolver {
 public:
  // `server`: IP:PORT of the DNS server; empty: the system's. `patience`: for the answer about one name.
  // INVALID_ARGUMENT: the server is no such address.
  static absl::StatusOr<std::unique_ptr<NameResolver>> Make(const std::string& server,
                                                            std::chrono::milliseconds patience);
  ~NameResolver();
  NameResolver(const NameResolver&) = delete;
  NameResolver& operator=(const NameResolver&) = delete;

  // The addresses of the workers that the name stands for, sorted, each once; none if DNS says that it knows none.
  // Blocks for the patience at most. UNAVAILABLE: no answer, one that cannot be read, or more than kMostWorkers.
  absl::StatusOr<std::vector<WorkerAddress>> Resolve(const WorkerName& name);
  // From any thread: what runs ends within a tenth of a second, and what comes at once, with UNAVAILABLE.
  void Cancel() { cancelled_ = true; }

 private:
  NameResolver(ares_channeldata* channel, std::chrono::milliseconds patience)
      : channel_(channel), patience_(patience) {}
  absl::StatusOr<std::vector<WorkerAddress>> ResolveHost(const WorkerName& name, int family);
  absl::StatusOr<std::vector<WorkerAddress>> ResolveService(const WorkerName& name);
  void Wait(const bool& done);

  ares_channeldata* const channel_;
  const std::chrono::milliseconds patience_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace baton
