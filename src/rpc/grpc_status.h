// absl::Status ↔ grpc::Status: the codes are the same numbers.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"

namespace baton {

// Trailing metadata of UNAVAILABLE and RESOURCE_EXHAUSTED: decimal milliseconds until a retry makes sense.
inline constexpr char kRetryAfterKey[] = "retry-after-ms";

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);
// Any number from the wire; what is no code becomes UNKNOWN.
absl::StatusCode StatusCodeFrom(int code);

// Nothing for a zero duration. Before the call is finished.
void AddRetryAfter(grpc::ServerContextBase& context, absl::Duration retry_after);
// Zero where the server gave none, or no number.
absl::Duration RetryAfterOf(const grpc::ClientContext& context);

}  // namespace baton
