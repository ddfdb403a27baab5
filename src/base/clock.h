// Clocks. Components take a clock in their constructor, so that tests and the simulator control
// time.
#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace baton {

class Clock {
 public:
  virtual ~Clock() = default;
  // Never goes back. Only differences between two values have a meaning.
  virtual absl::Time Now() const = 0;
  // Sleeps until this clock shows the given time. The default is for clocks that another party
  // advances, and returns at once.
  virtual void SleepUntil(absl::Time) const {}
  // Waits until `changed` is notified or this clock shows `until`. May return earlier. REQUIRES:
  // `lock` holds the mutex of the condition variable `changed`.
  virtual void Wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, absl::Time until) const;
};

// std::chrono::steady_clock.
class SteadyClock final : public Clock {
 public:
  absl::Time Now() const override;
  void SleepUntil(absl::Time time) const override;
};

// A clock that only Advance moves, with a resolution below one nanosecond. Thread-safe.
class ManualClock final : public Clock {
 public:
  absl::Time Now() const override {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  // Returns after at most one millisecond, because Advance does not notify waiting threads.
  void Wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, absl::Time until) const override;
  void Advance(absl::Duration by) {
    const std::lock_guard lock(mutex_);
    now_ += by;
  }

 private:
  mutable std::mutex mutex_;
  absl::Time now_ = absl::UnixEpoch();  // guarded by mutex_
};

}  // namespace baton
