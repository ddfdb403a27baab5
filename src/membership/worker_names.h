// Syntax of --prefill-workers and --decode-workers: worker addresses, and names that DNS or etcd
// resolve to workers.
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
    // HOST:PORT, one worker.
    kAddress,
    // dns:HOST:PORT, one worker per address of the host.
    kHosts,
    // srv:NAME, one worker per SRV record of the name, with the target and port of the record.
    kService,
    // etcd:PREFIX, one worker per key under the prefix. The value of the key is the address.
    kEtcd,
  };
  Kind kind = Kind::kAddress;
  // The whole address, the host, the service, or the prefix with a slash at its end.
  std::string name;
  std::string port{};  // for kHosts only

  auto operator<=>(const WorkerName&) const = default;
};

// Upper bound on the workers of one name. A larger answer is a mistake or an attack.
inline constexpr size_t kMaxWorkers = 1024;

// Returns whether `text` has 1 to 253 characters, each a letter, digit, hyphen, underscore or dot.
bool IsDnsName(absl::string_view text);

// Returns whether `text` is a HOST:PORT that gRPC dials over TCP. HOST is a DNS name, an IPv4
// address, or an IPv6 address in brackets. Use it for addresses from DNS or etcd. ParseWorkerName
// accepts more, because an operator may use any host syntax of gRPC.
bool IsWorkerAddress(absl::string_view text);

// Parses one name. Returns INVALID_ARGUMENT if `text` has none of the four forms.
absl::StatusOr<WorkerName> ParseWorkerName(const std::string& text);

}  // namespace baton
