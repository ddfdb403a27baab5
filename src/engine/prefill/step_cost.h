// The cost of a worker's steps by their number of tokens, learned from the steps that ran.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "absl/time/time.h"

namespace baton {

// A weighted least-squares line through the latest steps: seconds = fixed + each * tokens. `fixed`
// is the cost of a step without tokens, such as reading the weights and launching kernels. About
// the fifty latest steps count, the later ones more.
//
// The line ignores the length of the history that a step attends to. A streaming prompt has many
// small steps over an ever longer history, so its later steps take longer than the line predicts.
// TokensWithin corrects for the largest such excess among the latest steps of streaming prompts.
class StepCost {
 public:
  // Records a step. `yielding`: most of its tokens were of prompts that yield
  // (PrefillPrompt::Yields).
  void Add(int64_t tokens, absl::Duration took, bool yielding = false);

  // Returns the smallest number of tokens for which the fixed cost is at most this share of a
  // step's cost. Returns 0 while the line is unknown, because all steps had similar sizes.
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
  // Returns the largest ratio between the time of a recent `yielding` step and the line. It is at
  // least 1.
  double YieldingToLine() const;

  // Weighted sums over the steps.
  double weight_ = 0, tokens_ = 0, seconds_ = 0, tokens_squared_ = 0, product_ = 0;
  bool line_known_ = false;      // the sizes of steps differed enough for a slope
  double fixed_ = 0, each_ = 0;  // seconds
  // Tokens and seconds of the latest `yielding` steps.
  std::deque<std::pair<double, double>> yielding_;
};

}  // namespace baton
