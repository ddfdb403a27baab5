// What a worker's steps cost, learned from those that ran: seconds = fixed + each * tokens. `fixed` is what every step
// pays however small it is (reading the weights, launching kernels).
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "absl/time/time.h"

namespace baton {

// A weighted least-squares line through the latest steps; what is older counts less. Attention over a long history and
// other work on the machine are noise to it. As growing prompts become long step by step, the line is too low for them;
// by how much at most is learned from the latest few of their steps, of which one prompt's first are short and its last
// are long.
class StepCost {
 public:
  // `growing`: most of the tokens were of growing prompts.
  void Add(int64_t tokens, absl::Duration took, bool growing = false);

  // The fewest tokens of which a step's fixed cost is at most this share. 0: not known, steps were alike so far.
  int64_t WorthwhileTokens(double fixed_share) const;
  // What these tokens add to a step. 0: not known.
  absl::Duration TimeAdded(int64_t tokens) const { return absl::Seconds(each_ * static_cast<double>(tokens)); }
  // How many tokens of growing prompts a step computes within `time`; at least 0. `otherwise` if nothing is known.
  int64_t TokensWithin(absl::Duration time, int64_t otherwise) const;

 private:
  // What steps of growing prompts take at most, in terms of what the line says; at least 1.
  double GrowingToLine() const;

  double weight_ = 0, tokens_ = 0, seconds_ = 0, tokens_squared_ = 0, product_ = 0;  // weighted sums
  bool line_known_ = false;                                                          // steps differed enough
  double fixed_ = 0, each_ = 0;                                                      // seconds
  std::deque<std::pair<double, double>> growing_;  // tokens and seconds of the latest steps of growing prompts
};

}  // namespace baton
