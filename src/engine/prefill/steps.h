// When one request's prompt was computed, step by step, in bounded space.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "request/answers.h"

namespace baton {

// At most kMaxPrefillSteps: beyond, neighbours with the shortest pause between them become one.
class PrefillSteps {
 public:
  // `tokens` were computed for the request in a step of [begin, end). REQUIRES: no earlier than those before.
  void Add(absl::Time begin, absl::Time end, int32_t tokens);
  // As they are told: by how long they lie before `now`.
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
