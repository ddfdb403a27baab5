// When to plan the step that begins behind a running one: late, so that who comes meanwhile is in it, but not so late
// that the device waits. Goes by how long the last steps took there.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace baton {

class StepPace {
 public:
  // What it takes at most to plan a step and to begin it, with time to wake up.
  static constexpr absl::Duration kPlanningTime = absl::Milliseconds(1);

  // A step begins that waited for the host; one that is planned while another runs begins when that is over.
  void Begin(absl::Time now) { began_ = now; }
  absl::Time PlanAt() const;
  void Planned(absl::Time now) { planned_ = now; }
  void Over(absl::Time now);

 private:
  absl::Duration takes_;  // a step, at least
  absl::Time began_;
  std::optional<absl::Time> planned_;
};

}  // namespace baton
