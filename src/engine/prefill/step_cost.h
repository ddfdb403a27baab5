// The cost of a worker's steps by their number of tokens, learned from the steps that ran.
#pragma once

#include <cstdint>
#include <deque>

#include "absl/time/time.h"

namespace baton {

// A line through the latest steps: seconds = each * (fixed + tokens). `fixed` is the cost of a step
// without tokens, such as reading the weights and launching kernels, as a number of tokens.
//
// Other programs of a machine hold up single steps, so a few steps may take any time and do not
// move the line. Until enough steps were measured, and while all steps have similar sizes, `fixed`
// is an estimate of the caller. docs/design/prefill_steps.md has the reasons.
//
// The line ignores the length of the history that a step attends to. A streaming prompt has many
// small steps over an ever longer history, so its later steps take longer than the line predicts.
// TokensWithin corrects for such an excess among the latest steps of streaming prompts.
class StepCost {
 public:
  // `fixed_tokens` estimates `fixed`. If in doubt it should be small: a small estimate costs a few
  // short steps, which correct it. A large one prevents short steps.
  explicit StepCost(double fixed_tokens);

  // Records a step. `yielding`: most of its tokens were of prompts that yield
  // (PrefillPrompt::Yields). Ignores a step that took no time. REQUIRES: tokens > 0.
  void Add(int64_t tokens, absl::Duration took, bool yielding = false);

  // Returns the smallest number of tokens for which the fixed cost is at most this share of a
  // step's cost. It is at least 1.
  int64_t WorthwhileTokens(double fixed_share) const;
  // Returns the time that these tokens add to a step. Zero before the first step.
  absl::Duration TimeAdded(int64_t tokens) const { return absl::Seconds(each_ * static_cast<double>(tokens)); }
  // Returns a forecast of the time of a step with this many tokens. It covers the longer histories
  // of streaming prompts. Zero without tokens, and before the first step.
  absl::Duration Forecast(int64_t tokens) const;
  // Returns how many tokens of streaming prompts a step computes within `time`, at least 0. Returns
  // `otherwise` before the first step.
  int64_t TokensWithin(absl::Duration time, int64_t otherwise) const;

 private:
  struct Step {
    double tokens, seconds;
  };
  static double FixedOf(const Step& small, const Step& large);
  double LearnedFixed() const;
  double LearnedEach() const;
  // Returns the ratio between the time of recent `yielding` steps and the line, at least 1.
  double YieldingToLine() const;

  const double estimate_;
  std::deque<Step> steps_, yielding_;  // the latest ones
  double fixed_;                       // tokens
  double each_ = 0;                    // seconds
};

}  // namespace baton
