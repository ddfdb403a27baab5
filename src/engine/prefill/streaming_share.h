// How much of a step streaming prompts get beside closed ones (design idea 3).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/prefill/prompt.h"
#include "engine/prefill/prompt_queue.h"

namespace baton {

// Which rules bound what streaming prompts add to a closed prompt's time to first token, beside the increment.
struct StreamingBounds {
  bool share = true;      // tokens of streaming prompts per step
  bool waiting = true;    // tokens of streaming prompts from a closed prompt's arrival to its end
  bool break_off = true;  // a step of streaming prompts ends early for a closed prompt
};

struct OpenPromptLimits {
  // A streaming prompt takes part in a step beside others once this many of its tokens wait.
  int64_t increment = 64;
  // Upper bound on tokens of streaming prompts per step, at least one block. Beside a closed prompt they compute no
  // more than this from its arrival to its end, the step that ran when it came included.
  int64_t step_tokens = 512;
  // Streaming prompts have a step where the worker would idle once this many tokens of all of them wait. Where a step
  // of few tokens takes as long as one of many, as on a GPU, a few gain nothing, and a prompt that is closed meanwhile
  // has to wait for that step.
  int64_t alone = 1;
  // Upper bound on tokens of streaming prompts from a closed prompt's arrival to its end. Unset: step_tokens.
  std::optional<int64_t> while_waiting{};
  bool break_off = true;
};

// Counts what steps compute for prompts that yield (ScheduledPrompt::Yields): streaming ones, and those in the
// background, which hold up closed prompts no more than streaming ones may. Not thread-safe.
class StreamingShare {
 public:
  explicit StreamingShare(OpenPromptLimits limits) { Limit(limits); }
  void Limit(OpenPromptLimits limits);

  // A prompt was added, or an increment of it; `last`: it streams no more.
  void OnAdded(ScheduledPrompt& prompt);
  void OnExtended(ScheduledPrompt& prompt, bool last);

  // Whether the prompt takes part in a step beside others.
  bool IsWorthwhile(const ScheduledPrompt& prompt) const {
    return !prompt.task.open || prompt.wanted - prompt.planned >= limits_.increment;
  }
  // Whether the streaming prompts of the queue are worth a step that would be empty otherwise.
  bool AreWorthAStep(const PromptQueue& queue) const;
  // Tokens that the next step may compute for prompts that yield: beside others, and alone.
  int64_t TokensBeside(const PromptQueue& queue) const;
  int64_t TokensAlone() const { return limits_.step_tokens; }

  // A step was planned that computes `tokens` for prompts that yield; `step`: the prompts that it brings further.
  // `alone`: the closed ones that wait have waited for blocks so far, and not for streaming ones.
  void OnPlanned(const PromptQueue& queue, const std::vector<ScheduledPrompt*>& step, int64_t tokens, bool alone);
  // All prompts of the running step yielded when it was planned, it completes none, and a prompt that does not yield
  // has come since.
  bool StepHoldsUp() const { return limits_.break_off && step_yields_ && whole_came_ && !step_completes_; }
  bool step_yields() const { return step_yields_; }
  // Tokens of the running step of prompts that yielded when it was planned.
  int64_t tokens_in_step() const { return tokens_in_step_; }
  // The running step was broken off when so much of it was done, in [0, 1].
  void OnBrokenOff(const PromptQueue& queue, double done);
  void OnStepOver() { tokens_in_step_ = 0; }

 private:
  OpenPromptLimits limits_;
  int64_t tokens_in_step_ = 0;
  bool step_yields_ = false, whole_came_ = false, step_completes_ = false;  // see StepHoldsUp
};

}  // namespace baton
