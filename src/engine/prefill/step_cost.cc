#include "engine/prefill/step_cost.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

// Each step multiplies the weights of all earlier steps by this factor.
constexpr double kKeep = 0.98;
// The sizes of steps give no slope if their standard deviation is below this share of their mean.
constexpr double kLikeness = 0.25;
constexpr double kMostTokens = 1e9;
constexpr size_t kYieldingSteps = 16;
// Upper bound on YieldingToLine. Larger ratios come from other programs on the machine.
constexpr double kMostYielding = 4;

}  // namespace

void StepCost::Add(int64_t tokens, absl::Duration took, bool yielding) {
  const double x = static_cast<double>(tokens), y = absl::ToDoubleSeconds(took);
  if (yielding) yielding_.emplace_back(x, y);
  if (yielding_.size() > kYieldingSteps) yielding_.pop_front();
  weight_ = kKeep * weight_ + 1;
  tokens_ = kKeep * tokens_ + x;
  seconds_ = kKeep * seconds_ + y;
  tokens_squared_ = kKeep * tokens_squared_ + x * x;
  product_ = kKeep * product_ + x * y;

  const double mean_tokens = tokens_ / weight_, mean_seconds = seconds_ / weight_;
  const double variance = tokens_squared_ / weight_ - mean_tokens * mean_tokens;
  const double most_each = mean_seconds / mean_tokens;  // so that fixed_ >= 0
  if (std::sqrt(std::max(variance, 0.0)) >= kLikeness * mean_tokens) {
    line_known_ = true;
    each_ = (product_ / weight_ - mean_tokens * mean_seconds) / variance;
  } else if (!line_known_) {
    each_ = most_each;
  }
  each_ = std::clamp(each_, 0.01 * most_each, most_each);
  fixed_ = mean_seconds - each_ * mean_tokens;
}

double StepCost::YieldingToLine() const {
  double most = 1;
  for (const auto& [tokens, seconds] : yielding_) most = std::max(most, seconds / (fixed_ + each_ * tokens));
  return std::min(most, kMostYielding);
}

int64_t StepCost::WorthwhileTokens(double fixed_share) const {
  if (!line_known_ || each_ <= 0) return 0;
  const double tokens = fixed_ * (1 / fixed_share - 1) / each_;
  return std::max<int64_t>(1, std::llround(std::ceil(std::min(tokens, kMostTokens))));
}

absl::Duration StepCost::Forecast(int64_t tokens) const {
  if (tokens == 0) return absl::ZeroDuration();
  return absl::Seconds((fixed_ + each_ * static_cast<double>(tokens)) * YieldingToLine());
}

int64_t StepCost::TokensWithin(absl::Duration time, int64_t otherwise) const {
  if (each_ <= 0) return otherwise;
  const double tokens = (absl::ToDoubleSeconds(time) / YieldingToLine() - fixed_) / each_;
  return std::llround(std::floor(std::clamp(tokens, 0.0, kMostTokens)));
}

}  // namespace baton
