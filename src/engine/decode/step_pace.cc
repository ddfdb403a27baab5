#include "engine/decode/step_pace.h"

namespace baton {

void StepPace::Begin(absl::Time now) {
  began_ = now;
  duration_ = absl::ZeroDuration();
}

void StepPace::Finish(absl::Time now, bool device_waited) {
  if (device_waited) {
    // The measured time includes the host's delay, so the device's time for this step is not known.
    // If the plan was made late on purpose, it was made too late.
    if (PlanAt() > began_) margin_ *= 2;
    duration_ = absl::ZeroDuration();
  } else {
    // One unusually long step predicts little, so a single step raises the estimate only slightly.
    duration_ = std::min(now - began_, duration_ + std::max(duration_ / 8, kMinMargin / 2));
    margin_ = std::max(kMinMargin, margin_ - margin_ / 64);
  }
  began_ = now;
}

}  // namespace baton
