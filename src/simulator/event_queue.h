// Virtual time and the events that are scheduled in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/clock.h"

namespace baton {

// Events of the same instant run in the order in which they were scheduled. A run is therefore
// repeatable.
class EventQueue {
 public:
  using Event = absl::AnyInvocable<void()>;

  absl::Time Now() const { return clock_.Now(); }
  const Clock& clock() const { return clock_; }
  // Returns the time of the next event, or InfiniteFuture if there is none.
  absl::Time Next() const { return events_.empty() ? absl::InfiniteFuture() : events_.begin()->first.first; }
  // Schedules an event. REQUIRES: `when` is not in the past.
  void At(absl::Time when, Event event) {
    BATON_CHECK(when >= Now(), "an event in the past");
    events_.emplace(std::pair(when, ++sequence_), std::move(event));
  }
  void After(absl::Duration wait, Event event) { At(Now() + wait, std::move(event)); }
  // Advances the time without an event. REQUIRES: no event is earlier than `when`.
  void AdvanceTo(absl::Time when) {
    BATON_CHECK(when <= Next(), "an event is skipped");
    clock_.Advance(when - Now());
  }
  // Advances the time to the next event and runs the event. Returns false if there is none.
  bool RunOne() {
    if (events_.empty()) return false;
    auto next = events_.extract(events_.begin());
    clock_.Advance(next.key().first - Now());
    next.mapped()();
    return true;
  }

 private:
  ManualClock clock_;
  uint64_t sequence_ = 0;
  std::map<std::pair<absl::Time, uint64_t>, Event> events_;
};

// A timer of one component, set to the earliest time that the component requested.
class WakeUp {
 public:
  // Calls `wake` at `when`, or now if `when` is in the past. Does nothing if an earlier call is
  // pending. The callee of that earlier call must then set the timer again.
  void By(EventQueue& queue, absl::Time when, EventQueue::Event wake) {
    if (when >= next_) return;
    next_ = when;
    queue.At(std::max(when, queue.Now()), [this, when, wake = std::move(wake)]() mutable {
      // The timer has since been set to an earlier time.
      if (next_ != when) return;
      next_ = absl::InfiniteFuture();
      wake();
    });
  }

 private:
  absl::Time next_ = absl::InfiniteFuture();
};

}  // namespace baton
