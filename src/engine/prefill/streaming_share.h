// The share of a step that streaming prompts get beside closed ones (design idea 3).
#pragma once

#include <cstdint>

#include "engine/prefill/prompt.h"
#include "engine/prefill/prompt_queue.h"

namespace baton {

struct OpenPromptLimits {
  // A streaming prompt takes part in a step with other prompts once this many of its tokens wait.
  int64_t increment = 64;
  // Upper bound on tokens per step of prompts that yield (PrefillPrompt::Yields), at least one
  // block. It bounds the delay that these tokens cause for a closed prompt in each step.
  int64_t step_tokens = 512;
  // If the worker would idle, streaming prompts get a step of their own once this many tokens of
  // all of them wait. On a GPU a step of few tokens takes as long as a step of many. A step of few
  // tokens would gain nothing there, and it would delay a prompt that arrives or closes meanwhile.
  int64_t alone = 1;
};

// Bounds the tokens that a step computes for prompts that yield: streaming prompts and low-priority
// jobs. Not thread-safe.
class StreamingShare {
 public:
  explicit StreamingShare(OpenPromptLimits limits) { Limit(limits); }
  void Limit(OpenPromptLimits limits);

  // Returns true if the prompt takes part in a step with other prompts.
  bool IsWorthwhile(const PrefillPrompt& prompt) const {
    return !prompt.open || prompt.wanted - prompt.planned >= limits_.increment;
  }
  // Returns true if the streaming prompts of the queue are worth a step of their own.
  bool AreWorthAStep(const PromptQueue& queue) const;
  // Upper bound on tokens per step of all prompts that yield.
  int64_t step_tokens() const { return limits_.step_tokens; }

 private:
  OpenPromptLimits limits_;
};

}  // namespace baton
