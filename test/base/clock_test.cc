#include "base/clock.h"

#include "catch.h"

namespace baton {

TEST_CASE("ManualClock moves only when it is advanced") {
  ManualClock clock;
  const absl::Time start = clock.Now();
  REQUIRE(clock.Now() == start);
  clock.Advance(absl::Milliseconds(5));
  REQUIRE(clock.Now() - start == absl::Milliseconds(5));
}

TEST_CASE("ManualClock keeps a quarter of a nanosecond and so reaches any time") {
  ManualClock clock;
  const absl::Time due = clock.Now() + absl::Nanoseconds(1) / 4;
  clock.Advance(due - clock.Now());
  CHECK(clock.Now() == due);
}

TEST_CASE("SteadyClock never moves backwards") {
  SteadyClock clock;
  absl::Time last = clock.Now();
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = clock.Now();
    REQUIRE(now >= last);
    last = now;
  }
}

}  // namespace baton
