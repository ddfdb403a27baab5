// Names what a live request waits for. Errors of deadlines and traces have this text.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "agent/agent_graph.h"
#include "tenants/workflows.h"

namespace baton {

struct Request;

// Upper bound on the outputs in one WaitState. A prompt may refer to thousands.
inline constexpr size_t kMostAwaited = 64;

struct WaitState {
  enum class Stage { kPrompt, kSlot, kWorker, kPrefill, kScoring, kFirstToken, kDecode };
  // kPrompt: the prompt is incomplete, or the session is not admitted.
  Stage stage = Stage::kPrompt;
  std::string session{};  // that waits for its admission; empty: none
  AwaitedOutputs outputs{};
  std::string reason{};  // kWorker: why the request has no worker
  // Includes the output so far if another decode worker goes on with it.
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
};

// REQUIRES: RouterCore has the request.
WaitState WaitOf(const Request& request);
// Returns a text that continues "the request waits for". It names at most three outputs.
std::string TextOf(const WaitState& state);
// Returns DEADLINE_EXCEEDED for a request that ends now. `whose` is the deadline that passed.
absl::Status DeadlinePassed(const Request& request, std::string_view whose = "the deadline");
// Returns DEADLINE_EXCEEDED for a request or value that ends now with its workflow.
absl::Status WorkflowOverdue(const Workflows::Part& part);

}  // namespace baton
