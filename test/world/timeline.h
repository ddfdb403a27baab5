// The virtual time of a world. It has events, and a tick at a fixed period like a worker's thread.
#pragma once

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "simulator/event_queue.h"

namespace baton {

class Timeline {
 public:
  explicit Timeline(absl::Duration period) : period_(period), next_tick_(queue_.Now()) {}
  const Clock& clock() const { return queue_.clock(); }
  absl::Time Now() const { return queue_.Now(); }
  void After(absl::Duration wait, EventQueue::Event event) { queue_.After(wait, std::move(event)); }

  // Runs the next event or calls `tick`, whichever comes first. At one instant the tick comes
  // first. Returns false if the next one is later than `until`, or if no event is left and `idle`
  // holds.
  bool RunOne(absl::Time until, absl::FunctionRef<void()> tick, absl::FunctionRef<bool()> idle) {
    const absl::Time event = queue_.Next();
    if (std::min(event, next_tick_) > until || (event == absl::InfiniteFuture() && idle())) return false;
    if (event < next_tick_) return queue_.RunOne();
    queue_.AdvanceTo(next_tick_);
    next_tick_ += period_;
    tick();
    return true;
  }

 private:
  const absl::Duration period_;
  EventQueue queue_;
  absl::Time next_tick_;
};

}  // namespace baton
