// Sessions of agents as data, and how they run in a simulated cluster: each turn continues all that was said before it,
// by whichever model, and begins a pause after the end of the turn before it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "simulator/cluster.h"
#include "simulator/workflow.h"

namespace baton {

struct Turn {
  std::string model{};
  absl::Duration pause{};            // from the end of the turn before it, while a tool works; of the first: none
  std::vector<NamedTokens> added{};  // to the context, before it
  int32_t output = 0;                // tokens, which are then part of the context
};
using Session = std::vector<Turn>;

struct SessionOptions {
  bool share = true;                       // false: no turn finds KV of another
  std::vector<absl::Duration> arrivals{};  // as in RunOptions
  int32_t concurrent = 0;                  // at most so many at a time, the others wait their turn; 0: no limit
};

// From the beginning of the run.
struct TurnRan {
  absl::Duration submitted{}, first{}, ended{};
  int32_t prompt_tokens = 0, cached_tokens = 0;  // as in RequestOutcome
  std::vector<TokenId> tokens{};
};
struct SessionsResult {
  std::vector<std::vector<TurnRan>> sessions{};
  std::vector<StepRecord> steps{};
  int64_t bytes_pushed = 0;  // of KV
  int64_t host_tokens = 0;   // of prompts, brought back from host memory
  int64_t refused = 0;       // for want of room; the turn asks again at once
  int64_t blocks_held = 0;   // once all is over: 0, or some leak
};

// In a new cluster. INVALID_ARGUMENT: the cluster's shape or the arrivals; else the first request's failure.
absl::StatusOr<SessionsResult> RunSessions(const ClusterShape& shape, const std::vector<Session>& sessions,
                                           const SessionOptions& options);

}  // namespace baton
