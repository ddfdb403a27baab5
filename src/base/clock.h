// Time comes in by constructor, so that tests and the simulator can set it.
#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

namespace baton {

class Clock {
 public:
  virtual ~Clock() = default;
  // Never goes back. Only differences mean something.
  virtual absl::Time Now() const = 0;
  // Returns at that time; a clock that others move does not wait for them.
  virtual void SleepUntil(absl::Time) const {}
  // Waits until `changed` is notified or this clock shows `until`, and may return earlier. `lock` holds the mutex that
  // guards what `changed` announces.
  virtual void Wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, absl::Time until) const;
};

// std::chrono::steady_clock.
class SteadyClock final : public Clock {
 public:
  absl::Time Now() const override;
  void SleepUntil(absl::Time time) const override;
};

// Stands still until Advance moves it, exactly, also by less than a nanosecond. Thread-safe.
class ManualClock final : public Clock {
 public:
  absl::Time Now() const override {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  // Looks at the time again after a millisecond, because Advance does not know which threads wait.
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
