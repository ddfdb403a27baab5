#include "engine/prefill/steps.h"

#include <algorithm>

namespace baton {

void PrefillSteps::Add(absl::Time begin, absl::Time end, int32_t tokens) {
  steps_.push_back({.begin = begin, .end = end, .tokens = tokens, .steps = 1});
  if (steps_.size() <= kMaxPrefillSteps) return;
  size_t closest = 0;
  const auto pause = [this](size_t i) { return steps_[i + 1].begin - steps_[i].end; };
  for (size_t i = 1; i + 1 < steps_.size(); ++i) {
    if (pause(i) < pause(closest)) closest = i;
  }
  Step& merged = steps_[closest];
  const Step& next = steps_[closest + 1];
  merged.end = next.end;
  merged.tokens += next.tokens;
  merged.steps += next.steps;
  steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(closest) + 1);
}

std::vector<PrefillStep> PrefillSteps::Before(absl::Time now) const {
  std::vector<PrefillStep> result;
  result.reserve(steps_.size());
  for (const Step& step : steps_) {
    result.push_back({.began = now - step.begin, .ended = now - step.end, .tokens = step.tokens, .steps = step.steps});
  }
  return result;
}

}  // namespace baton
