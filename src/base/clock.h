// Time comes in by constructor, so that tests and the simulator can set it.
#pragma once

#include "absl/time/time.h"

namespace baton {

class Clock {
 public:
  virtual ~Clock() = default;
  // Never goes back. Only differences mean something.
  virtual absl::Time Now() const = 0;
  // Returns at that time; a clock that others move does not wait for them.
  virtual void SleepUntil(absl::Time) const {}
};

// std::chrono::steady_clock.
class SteadyClock final : public Clock {
 public:
  absl::Time Now() const override;
  void SleepUntil(absl::Time time) const override;
};

// Stands still until it is told to move.
class ManualClock final : public Clock {
 public:
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration by) { now_ += by; }

 private:
  absl::Time now_ = absl::UnixEpoch();
};

}  // namespace baton
