// The time of a decode worker's running step, and a forecast of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/time/time.h"

namespace baton {

// The forecast is the longest time of the last sixteen steps. Batches, histories and swaps change
// little from one step to the next, and routers compare a multiple of the forecast.
class StepForecast {
 public:
  void Begin(absl::Time now) { began_ = now; }
  // REQUIRES: a step runs.
  void Finish(absl::Time now) {
    times_[next_++ % times_.size()] = now - began_;
    began_ = absl::InfiniteFuture();
  }

  // Returns for how long the running step has run. Zero if none runs.
  absl::Duration RunningFor(absl::Time now) const { return std::max(now - began_, absl::ZeroDuration()); }
  // Returns a forecast of a step's whole time. Zero before the first step.
  absl::Duration forecast() const { return *std::ranges::max_element(times_); }

 private:
  absl::Time began_ = absl::InfiniteFuture();  // InfiniteFuture: no step runs
  std::array<absl::Duration, 16> times_{};     // a ring of the last steps
  size_t next_ = 0;
};

}  // namespace baton
