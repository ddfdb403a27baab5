#include "router/wait_state.h"

#include <algorithm>

#include "absl/time/time.h"
#include "base/strings.h"
#include "router/request.h"

namespace baton {
namespace {

constexpr size_t kMostNamed = 3;

// Returns why a request has no output: " (announced, not submitted)", or "" if it is live.
std::string ReasonText(const AwaitedOutput& output) {
  if (!output.announced) return "";
  if (output.failure.empty()) return " (announced, not submitted)";
  return StrCat(" (", output.failed_attempt > 0 ? StrCat("attempt ", output.failed_attempt, " failed: ") : "refused: ",
                output.failure, "; another attempt is awaited for ", absl::FormatDuration(output.retry_wait), ")");
}

std::string OutputsText(const AwaitedOutputs& outputs) {
  const size_t named = std::min(outputs.first.size(), kMostNamed);
  const int64_t more = outputs.count - static_cast<int64_t>(named);
  std::string text = outputs.count == 1 ? "the output of " : "the outputs of ";
  for (size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == named && more == 0;
    const AwaitedOutput& output = outputs.first[i];
    text += StrCat(i == 0 ? "" : last ? " and " : ", ", "'", output.id, "'", ReasonText(output));
  }
  return more == 0 ? text : StrCat(text, " and ", more, " more");
}

WaitState::Stage StageOf(const Request& request) {
  using Placed = Placement::State;
  const Placed state = request.placement.state;
  if (request.slot.state == RequestSlots::State::kQueued) return WaitState::Stage::kSlot;
  if (state == Placed::kHeld || request.node.streaming != nullptr) return WaitState::Stage::kPrompt;
  switch (state) {
    case Placed::kWaiting:
      return WaitState::Stage::kWorker;
    case Placed::kScoring:
      return WaitState::Stage::kScoring;
    case Placed::kStarting:
      return request.completion_tokens > 0 ? WaitState::Stage::kDecode : WaitState::Stage::kFirstToken;
    case Placed::kDecoding:
      return WaitState::Stage::kDecode;
    default:
      return WaitState::Stage::kPrefill;
  }
}

// Returns the text for a prompt that is incomplete or held.
std::string PromptText(const WaitState& state) {
  const std::string session = state.session.empty() ? "" : StrCat("admission of its session '", state.session, "'");
  if (state.outputs.count == 0) return session.empty() ? "its prompt" : session;
  return StrCat(session, session.empty() ? "" : " and ", OutputsText(state.outputs));
}

}  // namespace

WaitState WaitOf(const Request& request) {
  const StreamingPrompt* streaming = request.node.streaming.get();
  const bool held = request.placement.state == Placement::State::kHeld && request.placement.route.held;
  return {.stage = StageOf(request),
          .session = held ? request.asked.session : "",
          .outputs = streaming == nullptr ? AwaitedOutputs() : streaming->Awaited(kMostAwaited),
          .reason = std::string(Message(request.placement.reason)),
          .prompt_tokens = request.placement.prompt_tokens,
          .generated_tokens = request.completion_tokens};
}

absl::Status DeadlinePassed(const Request& request, std::string_view whose) {
  return absl::DeadlineExceededError(StrCat(whose, " passed while the request waited for ", TextOf(WaitOf(request))));
}

absl::Status WorkflowOverdue(const Workflows::Part& part) {
  const std::string deadline = Workflows::DeadlineText(part);
  if (part.node->request != nullptr) return DeadlinePassed(*part.node->request, deadline);
  return absl::DeadlineExceededError(deadline + " passed before the value was complete");
}

std::string TextOf(const WaitState& state) {
  switch (state.stage) {
    case WaitState::Stage::kPrompt:
      return PromptText(state);
    case WaitState::Stage::kSlot:
      return "a request slot";
    case WaitState::Stage::kWorker:
      return StrCat("a worker", state.reason.empty() ? "" : ": ", state.reason);
    case WaitState::Stage::kPrefill:
      return StrCat("prefill of ", state.prompt_tokens, " tokens");
    case WaitState::Stage::kScoring:
      return StrCat("log probabilities of ", state.prompt_tokens, " prompt tokens");
    case WaitState::Stage::kFirstToken:
      return "its first token";
    case WaitState::Stage::kDecode:
      return StrCat("the rest of its output, after ", state.generated_tokens, " tokens");
  }
  return "";
}

}  // namespace baton
