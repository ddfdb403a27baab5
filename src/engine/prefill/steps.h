// The steps that computed one request's prompt, with their times, in bounded space.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "request/answers.h"

namespace baton {

// Holds at most kMaxPrefillSteps entries. If there are more steps, Add merges the two neighbours
// with the shortest pause between them.
class PrefillSteps {
 public:
  // Records a step that ran during [begin, end) and computed `tokens` tokens for the request.
  // REQUIRES: steps are added in the order of time.
  void Add(absl::Time begin, absl::Time end, int32_t tokens);
  // Returns the steps with their times as durations before `now`.
  std::vector<PrefillStep> Before(absl::Time now) const;

 private:
  struct Step {
    absl::Time begin, end;
    int32_t tokens = 0;
    int32_t steps = 0;
  };
  std::vector<Step> steps_;
};

}  // namespace baton
