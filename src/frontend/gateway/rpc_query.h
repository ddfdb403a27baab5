// The query parameters of /generate and /prefill_only. They have no field in the message.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton {

struct RpcQuery {
  bool stream = false;  // answer with events
  // From the call's arrival. The request then fails with DEADLINE_EXCEEDED.
  absl::Duration timeout = absl::InfiniteDuration();
};

// Reads "stream=true" or "stream=false", if the call `may_stream`, and "timeout_ms=N". Each may
// appear once, separated by '&'. Returns INVALID_ARGUMENT if the query has anything else.
absl::StatusOr<RpcQuery> ReadRpcQuery(std::string_view query, bool may_stream);

}  // namespace baton
