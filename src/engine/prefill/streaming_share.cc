#include "engine/prefill/streaming_share.h"

#include "base/check.h"
#include "kv/block_layout.h"

namespace baton {

void StreamingShare::Limit(StreamingLimits limits) {
  BATON_CHECK(limits.step_tokens >= kBlockTokens, "streaming prompts may compute at least one block per step");
  limits_ = limits;
}

void StreamingShare::BeginStep(StepPlan& step) const {
  step.candidates = StepPlan::Candidates::kWorthwhile;
  step.yielding_tokens = limits_.step_tokens;
}

void StreamingShare::BeginIdleStep(StepPlan& step, const PromptQueue& queue) const {
  int64_t tokens = 0;
  for (const PrefillPrompt* prompt : queue) {
    if (prompt->streaming) tokens += prompt->wanted - prompt->planned;
  }
  const bool streaming = tokens >= limits_.alone;
  step.candidates = streaming ? StepPlan::Candidates::kYielding : StepPlan::Candidates::kLowPriorityJobs;
}

bool StreamingShare::TakesPart(const PrefillPrompt& prompt, const StepPlan& step) const {
  if (prompt.Yields() && step.yielding_tokens < kBlockTokens) return false;
  switch (step.candidates) {
    case StepPlan::Candidates::kWorthwhile:
      return !prompt.streaming || prompt.wanted - prompt.planned >= limits_.increment;
    case StepPlan::Candidates::kYielding:
      return prompt.Yields();
    case StepPlan::Candidates::kLowPriorityJobs:
      return !prompt.streaming && prompt.is_low_priority();
  }
  BATON_CHECK(false, "a step has candidates");
}

}  // namespace baton
