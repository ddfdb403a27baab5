// When to plan the step that begins behind a running one: late, so that who comes meanwhile is in it, but not so late
// that the device waits. Goes by how long the last steps took there.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace baton {

class StepPace {
 public:
  // Before the end of a step, for planning and enqueueing the next; more where that was not enough.
  static constexpr absl::Duration kLeastMargin = absl::Milliseconds(1);

  // A step begins for which the device waited: what was known of those before is forgotten.
  void Begin(absl::Time now);
  absl::Time PlanAt() const { return began_ + takes_ - std::max(margin_, takes_ / 8); }
  // The step is over, and the next begins if it has been enqueued; `device_waited`: it was, but too late.
  void Over(absl::Time now, bool device_waited);

 private:
  absl::Duration takes_;  // a step, on the device; at least, for it grows slowly
  absl::Duration margin_ = kLeastMargin;
  absl::Time began_;
};

}  // namespace baton
