// Workflows of agents as data, and their run in a simulated cluster. A run starts all agents at
// once, or each agent after its upstream agents.
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

// A list of `length` token ids, derived from `name`. Lists with equal names share a prefix, as long
// as the shorter list.
struct NamedTokens {
  std::string name;
  int64_t length = 0;
};
std::vector<TokenId> TokensOf(const NamedTokens& named);
// The output of an earlier agent of the same workflow.
struct OutputOf {
  std::string agent;
};
struct Agent {
  std::string name;
  std::vector<std::variant<NamedTokens, OutputOf>> parts{};
  int32_t output = 0;  // tokens
  // Runs on the paced decode worker, if the cluster has one.
  bool paced = false;
};
using Workflow = std::vector<Agent>;

struct RunOptions {
  // If false, each agent starts after its upstream agents, with the same segments.
  bool overlap = true;
  // If false, workflows do not share KV.
  bool share = true;
  // Start time of each workflow, in ascending order. Empty if all start at once.
  std::vector<absl::Duration> arrivals{};
};

// Returns INVALID_ARGUMENT if `arrivals` is neither empty nor of size `count`, or if its times are
// negative or not ascending.
absl::Status CheckArrivals(const std::vector<absl::Duration>& arrivals, size_t count);

// Times are since the beginning of the run.
struct AgentRan {
  absl::Duration submitted, first, ended;
  std::vector<TokenId> tokens;
};
struct RunResult {
  std::vector<std::map<std::string, AgentRan>> workflows;  // key: name of the agent
  std::vector<StepRecord> steps;
  // Blocks that are still held at the end. A value above 0 is a leak.
  int64_t blocks_held = 0;
};

// Runs the workflows concurrently in a new cluster whose links already exist. Each request carries
// its workflow, its agent's name and, as max_tokens, the length of its output. Errors:
// - INVALID_ARGUMENT if the shape or the arrivals are invalid, or if an agent waits for a later
//   one.
// - Otherwise the error of the first request that failed.
absl::StatusOr<RunResult> RunWorkflows(const ClusterShape& shape, const std::vector<Workflow>& workflows,
                                       const RunOptions& options);

}  // namespace baton
