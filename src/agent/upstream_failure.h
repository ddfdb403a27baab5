// The status of a request whose upstream request failed.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/ids.h"

namespace baton {

// Returns the status that the downstream request's client gets. Errors that a client may retry keep
// their code. The message has the root cause only, however many requests are between the two. If
// `status` has none, the upstream request is the root cause, and `agent` is its agent name. `first`
// is PromptSpec::first of the downstream request.
absl::Status UpstreamFailed(const RequestId& upstream, const std::string& agent, const absl::Status& status,
                            int32_t first);

// Returns the status of a request that failed, once prompts wait no longer for another attempt. Its
// code is ABORTED, because a retry of those prompts alone would fail too. REQUIRES: `status` has a
// root cause.
absl::Status AfterRetries(const absl::Status& status);

}  // namespace baton
