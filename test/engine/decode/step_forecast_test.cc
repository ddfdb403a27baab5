#include "engine/decode/step_forecast.h"

#include "catch.h"

namespace baton {
namespace {

using Kind = StepForecast::Kind;

TEST_CASE("StepForecast is the longest of the last sixteen steps") {
  StepForecast forecast;
  absl::Time now = absl::UnixEpoch();
  const auto run = [&](int ms) {
    forecast.Begin(0, Kind::kSequences, now);
    forecast.Finish(now += absl::Milliseconds(ms));
  };
  CHECK(forecast.forecast() == absl::ZeroDuration());
  run(40);
  for (int i = 0; i < 15; ++i) run(10);
  CHECK(forecast.forecast() == absl::Milliseconds(40));
  run(10);
  CHECK(forecast.forecast() == absl::Milliseconds(10));
}

TEST_CASE("StepForecast has a time when a step runs") {
  StepForecast forecast;
  const absl::Time now = absl::UnixEpoch();
  CHECK(forecast.RunningFor(now) == absl::ZeroDuration());
  forecast.Begin(0, Kind::kSequences, now);
  CHECK(forecast.RunningFor(now + absl::Seconds(2)) == absl::Seconds(2));
  forecast.Finish(now + absl::Seconds(3));
  CHECK(forecast.RunningFor(now + absl::Seconds(4)) == absl::ZeroDuration());
}

TEST_CASE("StepForecast has a forecast of its own for steps that score prompts") {
  StepForecast forecast;
  absl::Time now = absl::UnixEpoch();
  const auto run = [&](int ms, Kind kind) {
    forecast.Begin(0, kind, now);
    const absl::Duration expected = forecast.forecast();
    CHECK(forecast.Finish(now += absl::Milliseconds(ms)) == absl::Milliseconds(ms));
    return expected;
  };
  CHECK(run(10, Kind::kSequences) == absl::ZeroDuration());
  CHECK(run(200, Kind::kPrompts) == absl::ZeroDuration());  // unknown, so a router gives it long
  CHECK(run(25, Kind::kBoth) == absl::ZeroDuration());
  CHECK(run(10, Kind::kSequences) == absl::Milliseconds(10));
  CHECK(run(25, Kind::kBoth) == absl::Milliseconds(25));
  CHECK(run(200, Kind::kPrompts) == absl::Milliseconds(200));
}

TEST_CASE("StepForecast counts swaps by their bytes until they are complete") {
  constexpr int64_t kGigabyte = 1'000'000'000;
  StepForecast forecast;
  absl::Time now = absl::UnixEpoch();
  forecast.Begin(0, Kind::kSequences, now);
  forecast.Finish(now += absl::Milliseconds(10));

  forecast.Begin(3 * kGigabyte, Kind::kSequences, now);
  now += absl::Seconds(3);
  CHECK(forecast.RunningFor(now) == absl::Seconds(3));
  CHECK(forecast.forecast() > absl::Seconds(3));
  CHECK(forecast.forecast() < absl::Seconds(30));  // so that copies that never end are found
  forecast.Copied(now);
  CHECK(forecast.RunningFor(now) == absl::ZeroDuration());
  CHECK(forecast.forecast() == absl::Milliseconds(10));
  CHECK(forecast.Finish(now + absl::Milliseconds(20)) == absl::Milliseconds(20));  // without copies
  CHECK(forecast.forecast() == absl::Milliseconds(20));
}

}  // namespace
}  // namespace baton
