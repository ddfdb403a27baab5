// Virtual time: what happens next, and when.
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

// Events of one instant happen in the order in which they were asked for, so a run repeats exactly.
class EventQueue {
 public:
  using Event = absl::AnyInvocable<void()>;

  absl::Time Now() const { return clock_.Now(); }
  const Clock& clock() const { return clock_; }
  // InfiniteFuture: there is no event.
  absl::Time Next() const { return events_.empty() ? absl::InfiniteFuture() : events_.begin()->first.first; }
  // REQUIRES: `when` is not past.
  void At(absl::Time when, Event event) {
    BATON_CHECK(when >= Now(), "an event in the past");
    events_.emplace(std::pair(when, ++sequence_), std::move(event));
  }
  void After(absl::Duration wait, Event event) { At(Now() + wait, std::move(event)); }
  // Lets the time pass without an event. REQUIRES: no event is earlier than `when`.
  void AdvanceTo(absl::Time when) {
    BATON_CHECK(when <= Next(), "an event is skipped");
    clock_.Advance(when - Now());
  }
  // Lets the next event happen, and the time until it pass. False: there is none.
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

// What a part of a simulation waits for next: the earliest time that was asked for.
class WakeUp {
 public:
  // Calls `wake` at `when`, or now if that is past. Nothing if something earlier is waited for: whoever is called then
  // asks again.
  void By(EventQueue& queue, absl::Time when, EventQueue::Event wake) {
    if (when >= next_) return;
    next_ = when;
    queue.At(std::max(when, queue.Now()), [this, when, wake = std::move(wake)]() mutable {
      if (next_ != when) return;  // an earlier one has been asked for since
      next_ = absl::InfiniteFuture();
      wake();
    });
  }

 private:
  absl::Time next_ = absl::InfiniteFuture();
};

}  // namespace baton
