// One log line for each request. The lines contain nothing of prompts and outputs. `cached_tokens`
// of the router's line includes shared and staged tokens. That of a prefill worker's line includes
// staged tokens, but not shared ones.
#pragma once

#include <string>

#include "request/answers.h"
#include "router/request.h"

namespace baton {

// The router's line, at level info: the caller, how the request ended, how long it took, and its
// workers.
void LogRequestEnd(const RequestOutcome& outcome);

// The workers' lines, at level debug. `trace_id` may be empty.
void LogJobEnd(const RequestId& id, const std::string& trace_id, absl::StatusCode code);
void LogPrefilled(const PrefillDone& done, const std::string& trace_id);

}  // namespace baton
