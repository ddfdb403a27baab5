// The distribution of tokens that the CPU's sampler draws.
#include "catch.h"
#include "model/sampling_distribution.h"

namespace baton {
namespace {

TEST_CASE("Sampler draws from the distribution that its parameters define") {
  std::vector<DistributionLogits> logits = SmallDistributionLogits();
  // A row that is longer than the sampler's chunks.
  logits.push_back(MakeDistributionLogits({.name = "2507 ids, some unnamed", .vocab = 2507, .unnamed = true}));
  CheckDistributions(logits, [](const DistributionSetting& setting, const DistributionLogits& row, int64_t draws) {
    std::vector<int64_t> counts(row.raw.size());
    SamplerScratch scratch;
    for (int64_t seed = 0; seed < draws; ++seed) {
      const auto id = SamplerOf(setting, static_cast<uint64_t>(seed)).Sample(row.masked, scratch, nullptr);
      REQUIRE(id.ok());
      ++counts[static_cast<size_t>(*id)];
    }
    return counts;
  });
}

TEST_CASE("Sampler never lists a token of logit -inf among the most likely") {
  const DistributionLogits row = SmallDistributionLogits()[1];
  SamplerScratch scratch;
  TokenLogprobs logprobs;
  std::vector<float> few(100, -std::numeric_limits<float>::infinity());
  few[17] = 1;
  few[40] = 2;
  for (const float temperature : {0.0f, 3.0f}) {
    const SamplingParams params{.draw = {.temperature = temperature}, .logprobs = 20};
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const auto id = Sampler(params, {}, seed).Sample(row.masked, scratch, &logprobs);
      REQUIRE(id.ok());
      CHECK(std::ranges::find(row.unnamed, *id) == row.unnamed.end());
      REQUIRE(logprobs.top.size() == 20);
      for (const auto& [top, unused] : logprobs.top) CHECK(std::isfinite(row.masked[static_cast<size_t>(top)]));
    }
    REQUIRE(Sampler(params, {}, 1).Sample(few, scratch, &logprobs).ok());
    REQUIRE(logprobs.top.size() == 2);
    CHECK(logprobs.top[0].first == 40);
    CHECK(logprobs.top[1].first == 17);
  }
}

}  // namespace
}  // namespace baton
