// What a router's --prefill-workers and --decode-workers name: workers, or names by which DNS or etcd know workers.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace baton {

struct WorkerName {
  enum class Kind {
    kAddress,  // HOST:PORT, one worker
    kHosts,    // dns:HOST:PORT, a worker at each address of the host
    kService,  // srv:NAME, a worker for each SRV record of the name: its target and port
    kEtcd,     // etcd:PREFIX, a worker for each key under the prefix: the address that is its value
  };
  Kind kind = Kind::kAddress;
  std::string name;    // the whole address, the host, the service, or the prefix, which ends in a slash
  std::string port{};  // of kHosts

  auto operator<=>(const WorkerName&) const = default;
};

// Of one name. More are a mistake, or malice.
inline constexpr size_t kMostWorkers = 1024;

// Letters, digits, hyphens, underscores and dots, at most 253 of them.
bool IsDnsName(absl::string_view text);

// Whether it is HOST:PORT with a DNS name or an IP address, the one of IPv6 in brackets, and gRPC dials it as
// such. For what strangers say: what a user says of workers is let through that gRPC may understand.
bool IsWorkerAddress(absl::string_view text);

// INVALID_ARGUMENT: it is none of these.
absl::StatusOr<WorkerName> ParseWorkerName(const std::string& text);

}  // namespace baton
