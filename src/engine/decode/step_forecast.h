// The time of a decode worker's running step, and a forecast of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "engine/copy_forecast.h"

namespace baton {

// A step copies the blocks of swaps first, and then computes.
//
// - The forecast of its computation is the longest one of the last sixteen steps. Batches and
//   histories change little from one step to the next.
// - Swaps are rare and differ in size. Their forecast comes from their bytes, and their time does
//   not count as the step's once they are complete.
//
// Routers take a worker for hung if its step has run for a multiple of the forecast. So copies that
// make progress do not look like a hung step, and copies that never end do.
class StepForecast {
 public:
  // A step begins. It has `swapped_bytes` to copy before it computes.
  void Begin(int64_t swapped_bytes, absl::Time now) {
    began_ = now;
    copies_ = CopyForecast(swapped_bytes);
  }
  // The copies of the running step are complete. Need not be called if the step has none.
  void Copied(absl::Time now) { Begin(0, now); }
  // REQUIRES: a step runs.
  void Finish(absl::Time now) {
    times_[next_++ % times_.size()] = now - began_;
    began_ = absl::InfiniteFuture();
  }

  // Returns for how long the running step has copied or, after that, computed. Zero if none runs.
  absl::Duration RunningFor(absl::Time now) const { return std::max(now - began_, absl::ZeroDuration()); }
  // Returns a forecast of a step's time, with the copies of the running step until they are
  // complete. Zero without copies before the first step.
  absl::Duration forecast() const { return *std::ranges::max_element(times_) + copies_; }

 private:
  absl::Time began_ = absl::InfiniteFuture();  // InfiniteFuture: no step runs
  absl::Duration copies_;                      // forecast of the running step's copies
  std::array<absl::Duration, 16> times_{};     // a ring of the last steps
  size_t next_ = 0;
};

}  // namespace baton
