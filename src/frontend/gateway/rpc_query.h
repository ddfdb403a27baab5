// What /generate and /prefill_only are told beside their message, which has no field for it.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton {

struct RpcQuery {
  bool stream = false;                                // the answer is events
  absl::Duration timeout = absl::InfiniteDuration();  // from its arrival; then it is DEADLINE_EXCEEDED
};

// "stream=true" or "stream=false", where a call `may_stream`, and "timeout_ms=N", each at most once, with '&' between
// them. INVALID_ARGUMENT: the query has anything else.
absl::StatusOr<RpcQuery> ReadRpcQuery(std::string_view query, bool may_stream);

}  // namespace baton
