#include "engine/prefill/steps.h"

#include "catch.h"

namespace baton {
namespace {

absl::Time At(int64_t ms) { return absl::UnixEpoch() + absl::Milliseconds(ms); }

TEST_CASE("PrefillSteps reports steps with times before now") {
  PrefillSteps steps;
  CHECK(steps.Before(At(9)).empty());
  steps.Add(At(1), At(3), 16);
  steps.Add(At(5), At(6), 32);
  const auto reported = steps.Before(At(10));
  REQUIRE(reported.size() == 2);
  CHECK(reported[0].began == absl::Milliseconds(9));
  CHECK(reported[0].ended == absl::Milliseconds(7));
  CHECK(reported[1].tokens == 32);
  CHECK(reported[1].steps == 1);
}

TEST_CASE("PrefillSteps merges the steps with the shortest pause when there are too many") {
  PrefillSteps steps;
  const auto begin = [](int i) { return 10 * i - (i == 40 ? 4 : 0); };  // the 41st begins early
  const int all = static_cast<int>(kMaxPrefillSteps) + 1;
  for (int i = 0; i < all; ++i) steps.Add(At(begin(i)), At(10 * i + 1), 2);
  auto reported = steps.Before(At(0));
  REQUIRE(reported.size() == kMaxPrefillSteps);
  CHECK(reported[39].began == -absl::Milliseconds(390));
  CHECK(reported[39].ended == -absl::Milliseconds(401));
  CHECK(reported[39].tokens == 4);
  CHECK(reported[39].steps == 2);
  CHECK(reported[40].began == -absl::Milliseconds(410));

  for (int i = all; i < 1000; ++i) steps.Add(At(begin(i)), At(10 * i + 1), 2);
  reported = steps.Before(At(0));
  CHECK(reported.size() == kMaxPrefillSteps);
  int32_t tokens = 0, count = 0;
  for (const PrefillStep& step : reported) {
    tokens += step.tokens;
    count += step.steps;
  }
  CHECK(tokens == 2000);
  CHECK(count == 1000);
}

}  // namespace
}  // namespace baton
