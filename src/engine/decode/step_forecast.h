// The time of a decode worker's running step, and a forecast of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/time/time.h"
#include "engine/copy_forecast.h"

namespace baton {

// A step copies the blocks of swaps first, and then computes.
//
// - The forecast of its computation is the longest one of the last sixteen steps of its kind.
//   Batches and histories change little from one step to the next. Steps that score prompts are
//   kinds of their own, because they compute more tokens, and without sequences the most.
// - Swaps are rare and differ in size. Their forecast comes from their bytes, and their time does
//   not count as the step's once they are complete.
//
// Routers take a worker for hung if its step has run for a multiple of the forecast. So copies that
// make progress do not look like a hung step, and copies that never end do.
class StepForecast {
 public:
  enum class Kind { kSequences, kPrompts, kBoth };  // prompts that are scored

  // A step begins. It has `swapped_bytes` to copy before it computes.
  void Begin(int64_t swapped_bytes, Kind kind, absl::Time now) {
    began_ = now;
    copies_ = CopyForecast(swapped_bytes);
    kind_ = kind;
  }
  // The copies of the running step are complete. Need not be called if the step has none.
  void Copied(absl::Time now) { Begin(0, kind_, now); }
  // Ends the running step. Returns its time without copies. REQUIRES: a step runs.
  absl::Duration Finish(absl::Time now) {
    const absl::Duration took = now - std::exchange(began_, absl::InfiniteFuture());
    Times& times = times_[static_cast<size_t>(kind_)];
    times.last[times.next++ % times.last.size()] = took;
    return took;
  }

  // Returns for how long the running step has copied or, after that, computed. Zero if none runs.
  absl::Duration RunningFor(absl::Time now) const { return std::max(now - began_, absl::ZeroDuration()); }
  // Returns a forecast of the time of the running or last step, with the copies of the running step
  // until they are complete. Zero without copies before the first step of its kind has ended.
  absl::Duration forecast() const {
    return *std::ranges::max_element(times_[static_cast<size_t>(kind_)].last) + copies_;
  }

 private:
  absl::Time began_ = absl::InfiniteFuture();  // InfiniteFuture: no step runs
  absl::Duration copies_;                      // forecast of the running step's copies
  struct Times {
    std::array<absl::Duration, 16> last{};  // a ring of the last steps
    size_t next = 0;
  };
  std::array<Times, 3> times_{};  // by kind
  Kind kind_ = Kind::kSequences;  // of the running or last step
};

}  // namespace baton
