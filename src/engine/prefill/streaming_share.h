// How much of a step streaming prompts get beside closed ones (design idea 3).
#pragma once

#include <cstdint>

#include "engine/prefill/prompt.h"
#include "engine/prefill/prompt_queue.h"

namespace baton {

struct OpenPromptLimits {
  // A streaming prompt takes part in a step beside others once this many of its tokens wait.
  int64_t increment = 64;
  // Upper bound on tokens of streaming prompts per step, at least one block. A closed prompt waits
  // for at most as many in the step that runs when it arrives, and in each step that it shares.
  int64_t step_tokens = 512;
  // Streaming prompts have a step where the worker would idle once this many tokens of all of them
  // wait. On a GPU a step of few tokens takes as long as a step of many. There a step of few gains
  // nothing, and a prompt that arrives or closes meanwhile waits for its end.
  int64_t alone = 1;
};

// Bounds what a step computes for prompts that yield (PrefillPrompt::Yields): streaming prompts
// and low-priority jobs. Not thread-safe.
class StreamingShare {
 public:
  explicit StreamingShare(OpenPromptLimits limits) { Limit(limits); }
  void Limit(OpenPromptLimits limits);

  // Whether the prompt takes part in a step beside others.
  bool IsWorthwhile(const PrefillPrompt& prompt) const {
    return !prompt.open || prompt.wanted - prompt.planned >= limits_.increment;
  }
  // Whether the streaming prompts of the queue are worth a step that would be empty otherwise.
  bool AreWorthAStep(const PromptQueue& queue) const;
  // Tokens that a step computes at most for all prompts that yield.
  int64_t step_tokens() const { return limits_.step_tokens; }

 private:
  OpenPromptLimits limits_;
};

}  // namespace baton
