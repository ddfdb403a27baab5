#include "model/token_logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "catch.h"
#include "seeds.h"

namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_CASE("PromptLogprobsOf gives the log-softmax, the rank and the most likely tokens") {
  ForEachSeed(100, [](uint64_t seed) {
    std::mt19937 rng(static_cast<uint32_t>(seed));
    std::normal_distribution<float> normal(0, 5);
    std::vector<float> logits(1 + rng() % 300);
    for (float& logit : logits) logit = rng() % 16 == 0 ? -kInfinity : normal(rng);
    logits[rng() % logits.size()] = 3;
    std::vector<TokenId> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
    std::ranges::stable_sort(order, std::ranges::greater(),
                             [&](TokenId id) { return logits[static_cast<size_t>(id)]; });
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit});
    const auto exact = [&](TokenId id) { return double{logits[static_cast<size_t>(id)]} - std::log(sum); };

    const auto token = static_cast<TokenId>(rng() % logits.size());
    const auto top = static_cast<int32_t>(rng() % 21);
    SamplerScratch scratch;
    const TokenLogprobs got = PromptLogprobsOf(logits, token, top, scratch).value();
    const float logit = logits[static_cast<size_t>(token)];
    CHECK(got.rank == 1 + std::ranges::count_if(logits, [&](float other) { return other > logit; }));
    if (logit == -kInfinity) {
      CHECK(got.logprob == -kInfinity);
    } else {
      CHECK(std::abs(got.logprob - exact(token)) < 1e-5);
    }
    const auto finite = std::ranges::count_if(logits, [](float other) { return other != -kInfinity; });
    REQUIRE(std::ssize(got.top) == std::min<int64_t>(top, finite));
    for (size_t i = 0; i < got.top.size(); ++i) {
      CHECK(got.top[i].first == order[i]);
      CHECK(std::abs(got.top[i].second - exact(order[i])) < 1e-5);
    }
  });
}

TEST_CASE("PromptLogprobsOf refuses logits that are not finite") {
  SamplerScratch scratch;
  for (const std::vector<float>& logits :
       {std::vector{1.0f, std::numeric_limits<float>::quiet_NaN()}, {1.0f, kInfinity}, {-kInfinity, -kInfinity}}) {
    CHECK(absl::IsInternal(PromptLogprobsOf(logits, 0, 1, scratch).status()));
  }
}

}  // namespace
}  // namespace baton
