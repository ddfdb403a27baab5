// Conversion between absl::Status and grpc::Status. The numbers of the codes are equal.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"

namespace baton {

// Key of the trailing metadata of UNAVAILABLE and RESOURCE_EXHAUSTED. The value is the decimal
// number of milliseconds until a retry may succeed.
inline constexpr char kRetryAfterKey[] = "retry-after-ms";

// A root cause becomes a v1::StatusDetails in the status's details.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);
// Converts any number from the wire. An unassigned number becomes UNKNOWN.
absl::StatusCode StatusCodeFrom(int code);

// Adds `retry_after` to the trailing metadata. A zero duration adds nothing. REQUIRES: the call is
// not finished.
void AddRetryAfter(grpc::ServerContextBase& context, absl::Duration retry_after);
// Returns the server's retry delay. Returns zero if the server sent none or a malformed one.
absl::Duration RetryAfterOf(const grpc::ClientContext& context);

}  // namespace baton
