#include "engine/prefill/streaming_share.h"

#include <algorithm>

#include "base/check.h"

namespace baton {

void StreamingShare::Limit(OpenPromptLimits limits) {
  BATON_CHECK(limits.step_tokens >= kBlockTokens, "streaming prompts may compute at least one block per step");
  limits_ = limits;
}

void StreamingShare::OnAdded(ScheduledPrompt& prompt) {
  prompt.waited_for_streaming = tokens_in_step_;
  whole_came_ |= !prompt.Yields();
}

void StreamingShare::OnExtended(ScheduledPrompt& prompt, bool last) {
  if (last) {
    prompt.waited_for_streaming = std::max<int64_t>(0, tokens_in_step_ - (prompt.planned - prompt.slice_begin));
  }
  whole_came_ |= !prompt.Yields();
  step_completes_ |= last && prompt.planned > prompt.done && prompt.planned >= prompt.wanted;
}

bool StreamingShare::AreWorthAStep(const PromptQueue& queue) const {
  int64_t tokens = 0;
  for (const ScheduledPrompt* prompt : queue) {
    if (prompt->task.open) tokens += prompt->wanted - prompt->planned;
  }
  return tokens >= limits_.alone;
}

int64_t StreamingShare::TokensBeside(const PromptQueue& queue) const {
  int64_t beside = limits_.step_tokens;
  for (const ScheduledPrompt* prompt : queue) {
    if (prompt->Yields()) continue;
    beside = std::min(beside, limits_.while_waiting.value_or(limits_.step_tokens) - prompt->waited_for_streaming);
  }
  return beside;
}

void StreamingShare::OnPlanned(const PromptQueue& queue, const std::vector<ScheduledPrompt*>& step, int64_t tokens,
                               bool alone) {
  tokens_in_step_ = tokens;
  for (ScheduledPrompt* prompt : queue) {
    if (!prompt->Yields()) prompt->waited_for_streaming = tokens + (alone ? 0 : prompt->waited_for_streaming);
  }
  whole_came_ = false;
  step_completes_ = std::ranges::any_of(
      step, [](const ScheduledPrompt* prompt) { return !prompt->task.open && prompt->planned >= prompt->wanted; });
  step_yields_ = std::ranges::all_of(step, [](const ScheduledPrompt* prompt) { return prompt->Yields(); });
}

void StreamingShare::OnBrokenOff(const PromptQueue& queue, double done) {
  const auto not_done = static_cast<int64_t>((1 - done) * static_cast<double>(tokens_in_step_));
  for (ScheduledPrompt* prompt : queue) {
    prompt->waited_for_streaming = std::max<int64_t>(0, prompt->waited_for_streaming - not_done);
  }
}

}  // namespace baton
