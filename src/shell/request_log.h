// A line of the log for each request, without anything of what it says.
#pragma once

#include <string>

#include "request/answers.h"
#include "router/request.h"

namespace baton {

// The router's, at level info: who asked for what, how it ended, how long it took and where.
void LogRequestEnd(const RequestOutcome& outcome);

// The workers', at level debug. `trace_id`: may be empty.
void LogJobEnd(const RequestId& id, const std::string& trace_id, absl::StatusCode code);
void LogPrefilled(const PrefillDone& done, const std::string& trace_id);

}  // namespace baton
