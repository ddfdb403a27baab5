// The request whose failure makes other requests fail.
//
// The status of such a request carries the root cause in its payloads. It survives all requests
// between the two, so a client reads one cause instead of nested messages.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace baton {

// A cause goes into the metadata of an answer, whose size clients limit.
inline constexpr size_t kMaxCauseBytes = 1024;

struct RootCause {
  std::string request{};  // the client's name for it
  std::string agent{};    // empty: none
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::string message{};  // at most kMaxCauseBytes
  friend bool operator==(const RootCause&, const RootCause&) = default;
};

// Returns the root cause that the status carries, or nullopt.
std::optional<RootCause> RootCauseOf(const absl::Status& status);
// Returns the status with this root cause. REQUIRES: the status is not OK.
absl::Status WithRootCause(absl::Status status, const RootCause& cause);
// Returns the status of a failed request for the requests that depend on it: with its own root
// cause, or else with the request itself as root cause. REQUIRES: the status is not OK.
absl::Status AsRootCause(const absl::Status& status, std::string request, std::string agent);

}  // namespace baton
