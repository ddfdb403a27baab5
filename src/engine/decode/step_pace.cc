#include "engine/decode/step_pace.h"

namespace baton {

void StepPace::Begin(absl::Time now) {
  began_ = now;
  takes_ = absl::ZeroDuration();
}

void StepPace::Over(absl::Time now, bool device_waited) {
  if (device_waited) {
    // The measured time includes the host's delay, so the device's time for this step is not known.
    // If the plan was made late on purpose, it was made too late.
    if (PlanAt() > began_) margin_ *= 2;
    takes_ = absl::ZeroDuration();
  } else {
    // One unusually long step predicts little, so a single step raises the estimate only slightly.
    takes_ = std::min(now - began_, takes_ + std::max(takes_ / 8, kLeastMargin / 2));
    margin_ = std::max(kLeastMargin, margin_ - margin_ / 64);
  }
  began_ = now;
}

}  // namespace baton
