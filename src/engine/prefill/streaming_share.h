// The share of a step that streaming prompts get beside closed ones (design idea 3).
#pragma once

#include <cstdint>

#include "engine/prefill/prompt.h"
#include "engine/prefill/prompt_queue.h"
#include "engine/prefill/step_plan.h"

namespace baton {

struct StreamingLimits {
  // Number of waiting tokens at which a streaming prompt takes part in a step with other prompts.
  int64_t increment = 64;
  // Upper bound on tokens per step of prompts that yield (PrefillPrompt::Yields), at least one
  // block. It bounds the delay that these tokens cause for a closed prompt in each step.
  int64_t step_tokens = 512;
  // If the worker would idle: number of waiting tokens of all streaming prompts at which they get a
  // step of their own. On a GPU a step of few tokens takes as long as a step of many. A step of few
  // tokens would gain nothing there, and it would delay a prompt that arrives or closes meanwhile.
  int64_t alone = 1;
};

// Bounds the tokens that a step computes for prompts that yield: streaming prompts and low-priority
// jobs. Not thread-safe.
class StreamingShare {
 public:
  explicit StreamingShare(StreamingLimits limits) { Limit(limits); }
  void Limit(StreamingLimits limits);

  // Sets the step's tokens of prompts that yield, and its candidates: closed prompts, and streaming
  // prompts of which an increment of tokens waits.
  void BeginStep(StepPlan& step) const;
  // Changes the candidates of a step in which no prompt takes part. All prompts that yield take
  // part if the streaming prompts of the queue are worth a step of their own. Otherwise closed
  // low-priority jobs do.
  void BeginIdleStep(StepPlan& step, const PromptQueue& queue) const;
  // Returns true if the prompt is a candidate, and the step has a block of tokens left for prompts
  // that yield if the prompt is one of them.
  bool TakesPart(const PrefillPrompt& prompt, const StepPlan& step) const;

 private:
  StreamingLimits limits_;
};

}  // namespace baton
