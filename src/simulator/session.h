// Sessions of agents as data, and their run in a simulated cluster. The prompt of each turn is the
// whole conversation so far, for any model. After a turn ends, the session pauses, and then the
// next turn begins.
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
  // From the end of the previous turn, while a tool works. Unused in the first turn.
  absl::Duration pause{};
  // Tokens added to the conversation before this turn.
  std::vector<NamedTokens> added{};
  // Tokens of the output, which becomes part of the conversation.
  int32_t output = 0;
};
using Session = std::vector<Turn>;

struct SessionOptions {
  // If false, no turn reuses KV of another turn.
  bool share = true;
  std::vector<absl::Duration> arrivals{};  // as in RunOptions
  // Upper bound on sessions at a time. The others wait. 0 for no bound.
  int32_t concurrent = 0;
};

// Times are since the beginning of the run.
struct TurnRan {
  absl::Duration submitted{}, first{}, ended{};
  int32_t prompt_tokens = 0, cached_tokens = 0;  // as in RequestOutcome
  std::vector<TokenId> tokens{};
};
struct SessionsResult {
  std::vector<std::vector<TurnRan>> sessions{};
  std::vector<StepRecord> steps{};
  int64_t bytes_pushed = 0;  // of KV
  // Prompt tokens read back from host memory.
  int64_t host_tokens = 0;
  // Refusals for lack of room. The turn retries at once.
  int64_t refused = 0;
  // Blocks that are still held at the end. A value above 0 is a leak.
  int64_t blocks_held = 0;
};

// Runs the sessions in a new cluster. Returns INVALID_ARGUMENT if the shape or the arrivals are
// invalid. Otherwise returns the error of the first request that failed.
absl::StatusOr<SessionsResult> RunSessions(const ClusterShape& shape, const std::vector<Session>& sessions,
                                           const SessionOptions& options);

}  // namespace baton
