#include "base/clock.h"

#include "catch.h"

namespace baton {

TEST_CASE("a manual clock moves only when told") {
  ManualClock clock;
  const absl::Time start = clock.Now();
  REQUIRE(clock.Now() == start);
  clock.Advance(absl::Milliseconds(5));
  REQUIRE(clock.Now() - start == absl::Milliseconds(5));
}

TEST_CASE("a manual clock keeps a quarter of a nanosecond, so that it reaches any time") {
  ManualClock clock;
  const absl::Time due = clock.Now() + absl::Nanoseconds(1) / 4;
  clock.Advance(due - clock.Now());
  CHECK(clock.Now() == due);
}

TEST_CASE("the steady clock never goes back") {
  SteadyClock clock;
  absl::Time last = clock.Now();
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = clock.Now();
    REQUIRE(now >= last);
    last = now;
  }
}

}  // namespace baton
