// Sums over the requests of each agent of a workflow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "request/timeline.h"

namespace baton {

struct AgentSums {
  std::string agent{};  // empty: the requests without an agent name
  int32_t requests = 0;
  int32_t failed = 0;   // of `requests`
  int32_t refused = 0;  // not in `requests`
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  int64_t overlap_tokens = 0;  // OverlapTokens
  absl::Duration total{};
  absl::Duration upstream{};  // of `total`: waits for outputs of other requests
  absl::Duration queued{};    // of `total`: waits for workers
};

// Returns the number of prompt tokens that were computed for the request before its last upstream
// output was complete, as proto/inference.proto defines TracedRequest.overlap_tokens. Steps that
// the worker has merged count as one step.
int64_t OverlapTokens(const RequestLife& life);

// Returns the sums of all agents, those with the most time first. A live request counts with its
// tokens and time so far.
std::vector<AgentSums> SumsOf(const Timeline::Lives& lives, absl::Time now);

}  // namespace baton
