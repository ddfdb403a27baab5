#include "engine/step_loop.h"

#include <sys/resource.h>

#include <atomic>

#include "absl/synchronization/notification.h"
#include "catch.h"

namespace baton {
namespace {

TEST_CASE("StepLoop steps at once, repeats on request, and then waits for Wake") {
  SteadyClock clock;
  std::atomic<int> steps = 0;
  absl::Notification idle, woken;
  StepLoop loop(clock, [&] {
    const int step = ++steps;
    if (step < 3) return absl::InfinitePast();
    if (step == 3) idle.Notify();
    if (step == 4) woken.Notify();
    return absl::InfiniteFuture();
  });
  idle.WaitForNotification();
  loop.Wake();
  woken.WaitForNotification();
  loop.Stop();
  CHECK(steps == 4);
}

TEST_CASE("StepLoop does not sleep when its next step is due") {
  SteadyClock clock;
  absl::Notification done;
  const auto waits = [] {  // voluntary context switches of this thread so far
    rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  int steps = 0;
  int64_t waits_before = 0, waits_between = 0;
  StepLoop loop(clock, [&] {
    if (++steps == 1) waits_before = waits();
    if (steps <= 1000) return absl::InfinitePast();
    waits_between = waits() - waits_before;
    done.Notify();
    return absl::InfiniteFuture();
  });
  done.WaitForNotification();
  loop.Stop();
  CHECK(waits_between < 10);
}

TEST_CASE("StepLoop steps again at the time that the step returned") {
  SteadyClock clock;
  absl::Notification done;
  const absl::Time start = clock.Now();
  int steps = 0;
  StepLoop loop(clock, [&] {
    if (++steps == 1) return start + absl::Milliseconds(5);
    if (steps == 2) done.Notify();
    return absl::InfiniteFuture();
  });
  done.WaitForNotification();
  CHECK(clock.Now() >= start + absl::Milliseconds(5));
}

TEST_CASE("StepLoop steps again when Wake is called during a step") {
  SteadyClock clock;
  absl::Notification in_step, woken, again;
  int steps = 0;
  StepLoop loop(clock, [&] {
    if (++steps == 1) {
      in_step.Notify();
      woken.WaitForNotification();
    } else if (steps == 2) {
      again.Notify();
    }
    return absl::InfiniteFuture();
  });
  in_step.WaitForNotification();
  loop.Wake();
  woken.Notify();
  again.WaitForNotification();
}

TEST_CASE("StepLoop does not step after Stop") {
  SteadyClock clock;
  std::atomic<int> steps = 0;
  StepLoop loop(clock, [&] {
    ++steps;
    return absl::InfinitePast();
  });
  loop.Stop();
  const int after = steps;
  loop.Wake();
  loop.Stop();
  CHECK(steps == after);
}

}  // namespace
}  // namespace baton
