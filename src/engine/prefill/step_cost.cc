#include "engine/prefill/step_cost.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace baton {
namespace {

constexpr size_t kSteps = 32, kYieldingSteps = 16;
// The estimate of the fixed cost counts as this many pairs of steps.
constexpr size_t kEstimatePairs = 64;
// A pair of steps gives a fixed cost only if their sizes differ by this factor.
constexpr double kApart = 2;
constexpr double kMostFixed = 1e5, kMostTokens = 1e9;
// Upper bound on YieldingToLine. Larger ratios come from other programs on the machine.
constexpr double kMostYielding = 4;

// Returns the value that this share of the other values does not exceed. REQUIRES: not empty.
double Quantile(std::vector<double> values, double share) {
  const auto rank = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + rank);
  return values[static_cast<size_t>(rank)];
}

template <typename T>
void AddToLatest(std::deque<T>& latest, size_t most, const T& value) {
  latest.push_back(value);
  if (latest.size() > most) latest.pop_front();
}

}  // namespace

StepCost::StepCost(double fixed_tokens) : estimate_(std::clamp(fixed_tokens, 0.0, kMostFixed)), fixed_(estimate_) {}

void StepCost::Add(int64_t tokens, absl::Duration took, bool yielding) {
  if (took <= absl::ZeroDuration()) return;
  const Step step{.tokens = static_cast<double>(tokens), .seconds = absl::ToDoubleSeconds(took)};
  AddToLatest(steps_, kSteps, step);
  if (yielding) AddToLatest(yielding_, kYieldingSteps, step);
  fixed_ = LearnedFixed();
  each_ = LearnedEach();
}

// Returns the fixed cost, in tokens, of the line through two steps.
double StepCost::FixedOf(const Step& small, const Step& large) {
  const double each = (large.seconds - small.seconds) / (large.tokens - small.tokens);
  if (each <= 0) return kMostFixed;
  return std::clamp(small.seconds / each - small.tokens, 0.0, kMostFixed);
}

// The median over pairs of steps. A step that is held up makes the value of a pair too large if it
// is the smaller step, and too small if it is the larger one.
double StepCost::LearnedFixed() const {
  std::vector<double> values(kEstimatePairs, estimate_);
  for (auto a = steps_.begin(); a != steps_.end(); ++a) {
    for (auto b = steps_.begin(); b != a; ++b) {
      const auto& [small, large] =
          std::minmax(*a, *b, [](const Step& x, const Step& y) { return x.tokens < y.tokens; });
      if (large.tokens >= kApart * small.tokens) values.push_back(FixedOf(small, large));
    }
  }
  return Quantile(std::move(values), 0.5);
}

// The lower quartile over steps, because other programs only lengthen steps.
double StepCost::LearnedEach() const {
  std::vector<double> values;
  for (const Step& step : steps_) values.push_back(step.seconds / (fixed_ + step.tokens));
  return Quantile(std::move(values), 0.25);
}

// The upper quartile over yielding steps. It covers the long histories of a quarter of these steps,
// and ignores a few steps that are held up.
double StepCost::YieldingToLine() const {
  if (yielding_.empty()) return 1;
  std::vector<double> values;
  for (const Step& step : yielding_) values.push_back(step.seconds / (each_ * (fixed_ + step.tokens)));
  return std::clamp(Quantile(std::move(values), 0.75), 1.0, kMostYielding);
}

int64_t StepCost::WorthwhileTokens(double fixed_share) const {
  return std::max<int64_t>(1, std::llround(std::ceil(fixed_ * (1 / fixed_share - 1))));
}

absl::Duration StepCost::Forecast(int64_t tokens) const {
  if (tokens == 0) return absl::ZeroDuration();
  return absl::Seconds(each_ * (fixed_ + static_cast<double>(tokens)) * YieldingToLine());
}

int64_t StepCost::TokensWithin(absl::Duration time, int64_t otherwise) const {
  if (steps_.empty()) return otherwise;
  const double tokens = absl::ToDoubleSeconds(time) / (each_ * YieldingToLine()) - fixed_;
  return std::llround(std::floor(std::clamp(tokens, 0.0, kMostTokens)));
}

}  // namespace baton
