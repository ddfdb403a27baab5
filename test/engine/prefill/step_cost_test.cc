#include "engine/prefill/step_cost.h"

#include <random>

#include "catch.h"
#include "seeds.h"

namespace baton {
namespace {

// Returns the time of a step on a machine with 30 ms of fixed cost and 1 ms for each token.
absl::Duration Takes(int64_t tokens) { return absl::Milliseconds(30 + tokens); }

TEST_CASE("StepCost learns costs from steps of different sizes") {
  StepCost cost;
  for (const int64_t tokens : {16, 64, 512, 32, 256}) cost.Add(tokens, Takes(tokens));
  CHECK(cost.WorthwhileTokens(0.25) == Approx(90).margin(1));  // 30 ms of 120 ms are fixed
  CHECK(cost.WorthwhileTokens(0.5) == Approx(30).margin(1));
  CHECK(cost.TokensWithin(absl::Milliseconds(130), 0) == Approx(100).margin(1));
  CHECK(cost.TokensWithin(absl::Milliseconds(20), 0) == 0);
}

TEST_CASE("StepCost forecasts the time of a step by its tokens") {
  StepCost cost;
  CHECK(cost.Forecast(100) == absl::ZeroDuration());
  for (const int64_t tokens : {16, 64, 512, 32, 256}) cost.Add(tokens, Takes(tokens));
  CHECK(absl::AbsDuration(cost.Forecast(100) - Takes(100)) < absl::Milliseconds(1));
  CHECK(cost.Forecast(0) == absl::ZeroDuration());
  cost.Add(64, 3 * Takes(64), /*yielding=*/true);  // over a long history
  CHECK(cost.Forecast(100) > 2 * Takes(100));
}

TEST_CASE("StepCost gives an upper bound per token and no fixed cost for similar steps") {
  StepCost cost;
  CHECK(cost.TokensWithin(absl::Seconds(1), 77) == 77);
  CHECK(cost.WorthwhileTokens(0.25) == 0);
  for (int i = 0; i < 100; ++i) cost.Add(500, absl::Milliseconds(1000));
  CHECK(cost.WorthwhileTokens(0.25) == 0);
  CHECK(cost.TokensWithin(absl::Milliseconds(200), 0) == Approx(100).margin(1));
}

TEST_CASE("StepCost keeps its line while steps are similar and follows a slower machine") {
  StepCost cost;
  for (const int64_t tokens : {16, 512, 16, 512}) cost.Add(tokens, Takes(tokens));
  for (int i = 0; i < 1000; ++i) cost.Add(512, Takes(512));
  CHECK(cost.WorthwhileTokens(0.25) == Approx(90).margin(5));
  for (int i = 0; i < 400; ++i) cost.Add(i % 2 == 0 ? 16 : 512, 3 * Takes(i % 2 == 0 ? 16 : 512));
  CHECK(cost.TokensWithin(absl::Milliseconds(390), 0) == Approx(100).margin(2));
}

TEST_CASE("StepCost learns the excess of streaming prompts' steps within a few steps") {
  StepCost cost;
  for (const int64_t tokens : {16, 64, 512, 32, 256}) cost.Add(tokens, Takes(tokens));
  for (int i = 0; i < 4; ++i) cost.Add(200, 2 * Takes(200), /*yielding=*/true);
  CHECK(cost.TokensWithin(absl::Milliseconds(400), 0) == Approx(170).epsilon(0.1));
  for (int i = 0; i < 16; ++i) cost.Add(200, Takes(200), /*yielding=*/true);
  CHECK(cost.TokensWithin(absl::Milliseconds(400), 0) > 280);
}

TEST_CASE("StepCost gives usable numbers whatever times steps take") {
  ForEachSeed(1, [](uint64_t seed) {
    std::mt19937 random(seed);
    StepCost cost;
    for (int i = 0; i < 10'000; ++i) {
      const auto tokens = static_cast<int64_t>(1 + random() % (random() % 10 == 0 ? 4096 : 64));
      cost.Add(tokens, absl::Nanoseconds(random() % 3 == 0 ? 0 : random()), random() % 2 == 0);
      REQUIRE(cost.WorthwhileTokens(0.25) >= 0);
      REQUIRE(cost.WorthwhileTokens(0.25) <= 1'000'000'000);
      const int64_t within = cost.TokensWithin(absl::Milliseconds(random() % 1000), 5);
      REQUIRE(within >= 0);
      REQUIRE(within <= 1'000'000'000);
    }
  });
}

}  // namespace
}  // namespace baton
