#include "engine/decode/step_pace.h"

#include <algorithm>

#include "catch.h"

namespace baton {
namespace {

// A device, and a host that takes some time to plan a step and to enqueue it.
class PaceWorld {
 public:
  explicit PaceWorld(double host_ms) : host_(absl::Milliseconds(host_ms)) { pace_.Begin(now_); }

  // Runs a step of `ms` milliseconds on the device, and enqueues the next step behind it.
  void Step(double ms) {
    const absl::Time ends = now_ + absl::Milliseconds(ms);
    const absl::Time planned = std::max(now_, pace_.PlanAt()), enqueued = planned + host_;
    left = ends - planned;
    idle = std::max(absl::ZeroDuration(), enqueued - ends);
    now_ = std::max(ends, enqueued);
    pace_.Finish(now_, enqueued > ends);
  }
  // Runs `count` steps. Returns the time that the device waited in total.
  absl::Duration Steps(int count, double ms) {
    absl::Duration waited;
    for (int i = 0; i < count; ++i) {
      Step(ms);
      waited += idle;
    }
    return waited;
  }
  void GoIdle(double ms) {
    now_ += absl::Milliseconds(ms);
    pace_.Begin(now_);
  }

  absl::Duration left;  // time left of the last step when the next step was planned
  absl::Duration idle;  // idle time of the device before the next step began

 private:
  const absl::Duration host_;
  StepPace pace_;
  absl::Time now_ = absl::UnixEpoch();
};

constexpr absl::Duration kNone = absl::ZeroDuration();

TEST_CASE("StepPace plans when 1 ms or 1/8 of the step is left") {
  for (const auto& [ms, left] : {std::pair{0.6, 0.6}, {1.5, 1.0}, {4.0, 1.0}, {16.0, 2.0}, {80.0, 10.0}}) {
    INFO(ms << " ms");
    PaceWorld world(0.1);
    CHECK(world.Steps(100, ms) == kNone);
    CHECK(absl::AbsDuration(world.left - absl::Milliseconds(left)) < absl::Microseconds(1));
  }
}

TEST_CASE("StepPace widens its margin when the host needs more than 1 ms") {
  for (const auto& [ms, host_ms] : {std::pair{3.0, 1.5}, {3.0, 2.5}, {14.0, 3.0}, {14.0, 13.0}, {100.0, 30.0}}) {
    INFO("steps of " << ms << " ms, host " << host_ms << " ms");
    PaceWorld world(host_ms);
    CHECK(world.Steps(2000, ms) < 0.02 * 2000 * absl::Milliseconds(ms));
  }
}

TEST_CASE("StepPace plans at once when the host takes longer than the device") {
  PaceWorld world(2);
  CHECK(world.Steps(1000, 1.5) == 1000 * absl::Milliseconds(0.5));
}

TEST_CASE("StepPace ignores one step that is much longer") {
  PaceWorld world(0.1);
  world.Steps(60, 5);
  world.Step(500);
  CHECK(world.Steps(60, 5) == kNone);
}

TEST_CASE("StepPace adapts when steps become shorter or longer") {
  for (const double host_ms : {0.1, 0.7}) {
    PaceWorld world(host_ms);
    world.Steps(60, 20);
    world.Step(3);
    CHECK(world.idle > absl::Milliseconds(10));
    CHECK(world.Steps(60, 3) == kNone);
    CHECK(world.Steps(200, 20) == kNone);
    CHECK(world.left < absl::Milliseconds(3));
  }
}

TEST_CASE("StepPace forgets durations when the device was idle") {
  PaceWorld world(0.1);
  world.Steps(60, 20);
  world.GoIdle(1000);
  CHECK(world.Steps(60, 2) == kNone);
}

}  // namespace
}  // namespace baton
