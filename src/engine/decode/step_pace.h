// The time at which a decode worker plans the step after a running one. It is as late as possible,
// so that new arrivals join the batch, but early enough that the device does not wait.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace baton {

// Estimates the time from the durations of the last steps. Not thread-safe.
class StepPace {
 public:
  // Lower bound on the time reserved before the end of a step for planning and enqueueing the next
  // step. The reserved time grows when it was too short.
  static constexpr absl::Duration kMinMargin = absl::Milliseconds(1);

  // A step begins on a device that was idle. Forgets the durations of earlier steps.
  void Begin(absl::Time now);
  // Returns the time at which to plan the step after the running one.
  absl::Time PlanAt() const { return began_ + duration_ - std::max(margin_, duration_ / 8); }
  // The running step is over. If the next step was enqueued, it runs from now on. `device_waited`:
  // it was enqueued too late.
  void Finish(absl::Time now, bool device_waited);

 private:
  absl::Duration duration_;  // estimated duration of a step on the device; grows slowly
  absl::Duration margin_ = kMinMargin;
  absl::Time began_;
};

}  // namespace baton
