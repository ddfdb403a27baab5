#include "engine/decode/step_pace.h"

namespace baton {

void StepPace::Begin(absl::Time now) {
  began_ = now;
  takes_ = absl::ZeroDuration();
}

void StepPace::Over(absl::Time now, bool device_waited) {
  if (device_waited) {
    // How long it took there is not known, but how long the host did.
    if (PlanAt() > began_) margin_ *= 2;
    takes_ = absl::ZeroDuration();
  } else {
    // One that takes unusually long says little of the next.
    takes_ = std::min(now - began_, takes_ + std::max(takes_ / 8, kLeastMargin / 2));
    margin_ = std::max(kLeastMargin, margin_ - margin_ / 64);
  }
  began_ = now;
}

}  // namespace baton
