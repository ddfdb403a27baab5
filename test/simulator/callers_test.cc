// Callers without limits on their outputs reach the throughput of callers with the right limits.
#include "simulator/callers.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "backend/simulated/shapes.h"
#include "catch.h"

namespace baton {
namespace {

constexpr int kCallers = 10, kWarmUp = 5;

ClusterShape Node(int64_t blocks) {
  ClusterShape shape;
  shape.model = *ModelNamed("llama-3.1-8b");
  shape.device = *DeviceNamed("h200");
  shape.blocks = blocks;
  return shape;
}

// Ten callers whose outputs have random lengths, at most about three times the mean.
CallersLoad Ten(double mean, int requests, uint64_t seed, int32_t warm_up) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> length(1 / mean);
  CallersLoad load{.prompt = 100, .warm_up = warm_up};
  for (int caller = 0; caller < kCallers; ++caller) {
    Caller& drawn = load.callers.emplace_back();
    for (int i = 0; i < warm_up + requests; ++i)
      drawn.outputs.push_back(16 + static_cast<int32_t>(std::lround(std::min(length(random), 3 * mean))));
  }
  return load;
}

void CheckEqual(const CallersCompared& compared, double share) {
  CHECK(compared.none.tokens == compared.right.tokens);
  CHECK(compared.none.tokens_per_s >= share * compared.right.tokens_per_s);
  // At most one preemption for five requests.
  CHECK(compared.none.preemptions <= static_cast<int64_t>(compared.none.tokens[0].size()) * kCallers / 5);
}

TEST_CASE("Ten callers without limits are as fast as with right ones when lengths are learned") {
  for (const double mean : {20, 200, 500}) {
    // Memory for about half of the callers.
    const auto blocks = static_cast<int64_t>(kCallers / 2 * (100 + 16 + mean) / kBlockTokens);
    CAPTURE(mean, blocks);
    const auto compared = CompareLimits(Node(std::max<int64_t>(blocks, 40)), Ten(mean, 20, 7, kWarmUp));
    REQUIRE(compared.ok());
    CheckEqual(*compared, 0.95);
  }
}

TEST_CASE("Ten callers without limits are hardly slower when no length is learned yet") {
  for (const double mean : {20, 200, 500}) {
    const auto blocks = static_cast<int64_t>(kCallers / 2 * (100 + 16 + mean) / kBlockTokens);
    CAPTURE(mean, blocks);
    const auto compared = CompareLimits(Node(std::max<int64_t>(blocks, 40)), Ten(mean, 20, 7, 0));
    REQUIRE(compared.ok());
    CheckEqual(*compared, 0.85);
  }
}

}  // namespace
}  // namespace baton
