#include "engine/step_pace.h"

#include <algorithm>

namespace baton {

absl::Time StepPace::PlanAt() const { return began_ + takes_ - std::max(kPlanningTime, takes_ / 8); }

void StepPace::Over(absl::Time now) {
  const bool waited = PlanAt() > began_;
  if (waited && planned_ && now - *planned_ < kPlanningTime / 2) {
    takes_ = absl::ZeroDuration();  // it was over before: nobody knows for how long
  } else {
    // One that takes unusually long says little of the next.
    takes_ = std::min(now - began_, takes_ + std::max(takes_ / 16, kPlanningTime / 4));
  }
  began_ = now;
  planned_.reset();
}

}  // namespace baton
