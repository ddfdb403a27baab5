// Callers in a closed loop, with and without limits on their outputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "simulator/cluster.h"

namespace baton {

struct Caller {
  std::string agent{};             // empty: none
  std::vector<int32_t> outputs{};  // tokens of the output of each request
};

struct CallersLoad {
  std::vector<Caller> callers{};
  int64_t prompt = 0;  // tokens of each prompt; no two prompts share any
  // Each caller's first requests that do not count. The others begin when all of these have ended.
  int32_t warm_up = 0;
};

struct CallersResult {
  double tokens_per_s = 0;  // of outputs
  int64_t preemptions = 0;  // including the warm-up
  int64_t refused = 0;      // hand-offs that the decode workers had no room for
  // [caller][request]
  std::vector<std::vector<std::vector<TokenId>>> tokens{};
};

struct CallersCompared {
  CallersResult right;  // max_tokens is the length of the output
  CallersResult none;   // no max_tokens; the output ends by itself
};

// Runs the same load in two new clusters, with the right limits and without limits. Each caller
// submits its next request when the previous one has ended. Outputs end by themselves at a stop
// text, which is the end of the output in the first cluster. Returns INVALID_ARGUMENT if the shape
// is invalid. Otherwise returns the error of the first request that failed.
absl::StatusOr<CallersCompared> CompareLimits(const ClusterShape& shape, const CallersLoad& load);

}  // namespace baton
