// Whether and when a client submits a failed request again.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton {

// Whether a client may retry a request that ended with this status.
bool MayRetry(const absl::Status& status);

// Returns the retry delay of an answer with this status. `known` is the delay that the refusal
// states, or zero. Returns zero if the answer has no delay.
absl::Duration RetryDelayOf(const absl::Status& status, absl::Duration known);

}  // namespace baton
