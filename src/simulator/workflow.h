// Workflows of agents as data, and how they run in a simulated cluster: all agents at once, or each when those that it
// waits for are done.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "simulator/cluster.h"

namespace baton {

// `length` token ids; equal names give equal ones, as far as both go.
struct NamedTokens {
  std::string name;
  int64_t length = 0;
};
std::vector<TokenId> TokensOf(const NamedTokens& named);
// The output of an agent of the same workflow, named before.
struct OutputOf {
  std::string agent;
};
struct Agent {
  std::string name;
  std::vector<std::variant<NamedTokens, OutputOf>> parts{};
  int32_t output = 0;  // tokens
  bool paced = false;  // runs on the paced decode worker, if the cluster has one
};
using Workflow = std::vector<Agent>;

struct RunOptions {
  bool overlap = true;  // false: sequential, with the same segments
  bool share = true;    // false: each workflow's KV is its own
  // When each workflow begins, none before the one that it follows; empty: all at once.
  std::vector<absl::Duration> arrivals{};
};

// INVALID_ARGUMENT: there are some, but not for each of `count`, or one is before the one that it follows.
absl::Status CheckArrivals(const std::vector<absl::Duration>& arrivals, size_t count);

// From the beginning of the run.
struct AgentRan {
  absl::Duration submitted, first, ended;
  std::vector<TokenId> tokens;
};
struct RunResult {
  std::vector<std::map<std::string, AgentRan>> workflows;  // by name of the agent
  std::vector<StepRecord> steps;
  int64_t blocks_held = 0;  // once all is over: 0, or some leak
};

// Side by side, in a new cluster whose links stand already. INVALID_ARGUMENT: the cluster's shape, the arrivals, or a
// workflow in which an agent waits for one that is not named before it; else the first request's failure.
//
// The router knows of each request its workflow, its agent's name and, by max_tokens, the length of its output.
absl::StatusOr<RunResult> RunWorkflows(const ClusterShape& shape, const std::vector<Workflow>& workflows,
                                       const RunOptions& options);

}  // namespace baton
