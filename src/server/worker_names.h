// What a router's --prefill-workers and --decode-workers name: workers, or names that DNS knows workers by.
#pragma once

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
  };
  Kind kind = Kind::kAddress;
  std::string name;    // the whole address, the host, or the service
  std::string port{};  // of kHosts
};

// Letters, digits, hyphens, underscores and dots, at most 253 of them.
bool IsDnsName(absl::string_view text);

// INVALID_ARGUMENT: it is none of these.
absl::StatusOr<WorkerName> ParseWorkerName(const std::string& text);

}  // namespace baton
