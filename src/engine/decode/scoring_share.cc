#include "engine/decode/scoring_share.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

constexpr int64_t kStepsBetween = 16;  // between two steps that measure the sequences alone

}  // namespace

ScoringShare::ScoringShare(ScoringLimits limits) : limits_(limits) {
  BATON_CHECK(limits_.step_tokens >= 1, "a step computes at least one token of a prompt");
}

absl::Duration ScoringShare::RecentMedian::value() const {
  std::array<absl::Duration, 5> sorted = times_;
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(added_, sorted.size()));
  const auto median = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), median, end);
  return *median;
}

absl::Duration ScoringShare::Alone(int64_t sequences) const {
  const double more = static_cast<double>(sequences) / static_cast<double>(sequences_);
  return alone_.value() * std::max(more, 1.0);
}

int32_t ScoringShare::Tokens(int64_t sequences) const {
  if (sequences == 0 || limits_.step_time == absl::ZeroDuration()) return limits_.step_tokens;
  if (!alone_.known() || since_alone_ >= (sequences == sequences_ ? kStepsBetween : 1)) return 0;
  if (!each_.known()) return 1;
  const absl::Duration alone = Alone(sequences);
  const double tokens = absl::FDivDuration(std::max(limits_.step_time - alone, alone / 4), each_.value());
  return static_cast<int32_t>(std::clamp<double>(tokens, 1, limits_.step_tokens));
}

void ScoringShare::Add(int64_t sequences, int64_t prompt_tokens, absl::Duration took) {
  if (prompt_tokens == 0) {
    if (std::exchange(sequences_, sequences) != sequences) alone_ = {};
    alone_.Add(took);
    since_alone_ = 0;
    return;
  }
  ++since_alone_;
  if (!alone_.known()) return;
  // On a fast device prompt tokens take no measurable time. They count as at least 1/16 of the
  // step, so that the time of a token is neither zero nor negative.
  each_.Add(std::max(took - Alone(sequences), took / 16) / prompt_tokens);
}

}  // namespace baton
