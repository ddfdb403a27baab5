#include "engine/step_pace.h"

#include <algorithm>

#include "catch.h"

namespace baton {
namespace {

// A device and its host, which takes a tenth of a millisecond to plan a step and to begin it.
class PaceWorld {
 public:
  PaceWorld() { pace_.Begin(now_); }

  // A step of so many milliseconds, behind which another one begins.
  void Step(double ms) {
    const absl::Time ends = now_ + absl::Milliseconds(ms);
    const absl::Time planned = std::max(now_, pace_.PlanAt());
    pace_.Planned(planned);
    left = ends - planned;
    idle = std::max(absl::ZeroDuration(), planned + absl::Milliseconds(0.1) - ends);
    now_ = std::max(ends, planned + absl::Milliseconds(0.1));
    pace_.Over(now_);
  }
  void Steps(int count, double ms) {
    for (int i = 0; i < count; ++i) Step(ms);
  }

  absl::Duration left;  // of the last step, when the next was planned
  absl::Duration idle;  // of the device, before the next began

 private:
  StepPace pace_;
  absl::Time now_ = absl::UnixEpoch();
};

TEST_CASE("the next step is planned with a millisecond or an eighth of the step left, short ones' at once") {
  for (const auto& [ms, left] : {std::pair{0.6, 0.6}, {1.5, 1.0}, {4.0, 1.0}, {16.0, 2.0}, {80.0, 10.0}}) {
    INFO(ms << " ms");
    PaceWorld world;
    for (int i = 0; i < 100; ++i) {
      world.Step(ms);
      CHECK(world.idle == absl::ZeroDuration());
    }
    CHECK(absl::AbsDuration(world.left - absl::Milliseconds(left)) < absl::Microseconds(1));
  }
}

TEST_CASE("a step that takes much longer once makes no later one wait") {
  PaceWorld world;
  world.Steps(30, 5);
  world.Step(500);
  for (int i = 0; i < 30; ++i) {
    world.Step(5);
    CHECK(world.idle == absl::ZeroDuration());
  }
}

TEST_CASE("where steps become shorter, the device waits for one of them, and longer ones are planned later again") {
  PaceWorld world;
  world.Steps(60, 20);
  world.Step(5);
  CHECK(world.idle > absl::Milliseconds(10));
  for (int i = 0; i < 30; ++i) {
    world.Step(5);
    CHECK(world.idle == absl::ZeroDuration());
  }
  for (int i = 0; i < 60; ++i) {
    world.Step(20);
    CHECK(world.idle == absl::ZeroDuration());
  }
  CHECK(world.left < absl::Milliseconds(3));
}

}  // namespace
}  // namespace baton
