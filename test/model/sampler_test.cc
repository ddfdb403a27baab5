#include "model/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "model/reference_sampler.h"
#include "model/sampler_kernels.h"
#include "seeds.h"

namespace baton {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(std::mt19937& rng, size_t n, float spread) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(n);
  for (float& l : logits) l = normal(rng);
  return logits;
}

std::map<TokenId, int> Histogram(const std::vector<float>& logits, SamplingParams params, int draws) {
  SamplerScratch scratch;
  Sampler sampler(params, {}, 0);
  std::map<TokenId, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[sampler.Sample(logits, scratch, nullptr).value()];
  return counts;
}

TEST_CASE("SamplerKernels give the portable bits at every level and length") {
  std::mt19937 rng(1);
  const SamplerKernels& portable = SamplerLevels().back();
  for (const int64_t n : {1, 2, 7, 8, 9, 15, 16, 31, 32, 33, 100, 1023, 1024, 1025, 5000}) {
    const std::vector<float> x = RandomLogits(rng, n, 20);
    const float max = *std::max_element(x.begin(), x.end());
    std::vector<float> expected(n);
    portable.exp_weights(x.data(), n, max, 1.3f, expected.data());
    for (const SamplerKernels& level : SamplerLevels()) {
      INFO("n " << n);
      CHECK(level.max(x.data(), n) == max);
      std::vector<float> w(n);
      level.exp_weights(x.data(), n, max, 1.3f, w.data());
      CHECK(w == expected);
      const auto tail = level.tail(w.data(), n, 1e-9f);
      CHECK(tail.count == std::count_if(w.begin(), w.end(), [](float v) { return v >= 1e-9f; }));
      CHECK(tail.sum == portable.tail(w.data(), n, 1e-9f).sum);
      std::vector<float> out(n);
      std::vector<TokenId> ids(n);
      const int64_t size = level.compact(w.data(), n, 1e-9f, out.data(), ids.data());
      REQUIRE(size == tail.count);
      for (int64_t i = 0; i < size; ++i) CHECK(out[i] == w[ids[i]]);
      CHECK(std::is_sorted(ids.begin(), ids.begin() + size));
    }
  }
}

TEST_CASE("SamplerKernels compute exponentials within 2e-7 and 0 for -inf") {
  for (const SamplerKernels& level : SamplerLevels()) {
    double worst = 0;
    for (float x = 0; x > -80; x -= 0.00137f) {
      float w;
      level.exp_weights(&x, 1, 0, 1, &w);
      worst = std::max(worst, std::abs(w / std::exp(double{x}) - 1));
    }
    CHECK(worst < 2e-7);
    const float ends[] = {0, -86, -1e30f, -kInf};
    float w[4];
    level.exp_weights(ends, 4, 0, 1e5f, w);
    CHECK(w[0] == 1);
    for (int i = 1; i < 4; ++i) CHECK(w[i] == 0);
  }
}

TEST_CASE("A greedy Sampler takes the largest logit, and the lowest id among equals") {
  SamplerScratch scratch;
  SamplingParams params{.draw = {.temperature = 0}};
  std::vector<float> logits(1000, -3.0f);
  Sampler sampler(params, {}, 1);
  CHECK(sampler.Sample(logits, scratch, nullptr).value() == 0);
  logits[700] = logits[41] = 2.5f;
  CHECK(sampler.Sample(logits, scratch, nullptr).value() == 41);
  logits[999] = 2.6f;
  CHECK(sampler.Sample(logits, scratch, nullptr).value() == 999);
  params.draw.temperature = 1;
  params.draw.top_k = 1;
  CHECK(Sampler(params, {}, 1).Sample(logits, scratch, nullptr).value() == 999);
}

TEST_CASE("Sampler fails on logits that are not finite except -inf") {
  SamplerScratch scratch;
  std::vector<float> logits(64, -kInf);
  for (const float temperature : {0.0f, 1.0f}) {
    CHECK(Sampler({.draw = {.temperature = temperature}}, {}, 1).Sample(logits, scratch, nullptr).status().code() ==
          absl::StatusCode::kInternal);
    for (const float bad : {kInf, std::nanf("")}) {
      for (const size_t at : {0, 5, 63}) {
        std::vector<float> broken(64, 1.0f);
        broken[at] = bad;
        CHECK(!Sampler({.draw = {.temperature = temperature}}, {}, 1).Sample(broken, scratch, nullptr).ok());
      }
    }
  }
  logits[17] = -1e30f;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    CHECK(Sampler({}, {}, seed).Sample(logits, scratch, nullptr).value() == 17);
    CHECK(Sampler({.draw = {.top_p = 0.5f}}, {}, seed).Sample(logits, scratch, nullptr).value() == 17);
    CHECK(Sampler({.draw = {.top_k = 9, .min_p = 0.1f}}, {}, seed).Sample(logits, scratch, nullptr).value() == 17);
  }
}

TEST_CASE("Sampler keeps the tokens that a sort in double precision keeps") {
  ForEachSeed(300, [](uint64_t seed) {
    std::mt19937 rng(seed);
    const size_t vocab = std::uniform_int_distribution<size_t>(2, 600)(rng);
    std::vector<float> logits = RandomLogits(rng, vocab, std::uniform_real_distribution<float>(0, 8)(rng));
    if (seed % 3 == 0) {
      for (float& l : logits) l = std::round(l);  // makes many ties
    }
    std::uniform_real_distribution<float> unit(0, 1);
    SamplingParams params{.draw = {.temperature = 0.3f + 2 * unit(rng)}, .seed = seed};
    if (seed % 2) params.draw.top_k = std::uniform_int_distribution<int>(1, 2 * static_cast<int>(vocab))(rng);
    if (seed / 2 % 2) params.draw.top_p = 0.05f + 0.94f * unit(rng);
    if (seed / 4 % 2) params.draw.min_p = 0.2f * unit(rng);
    const Naive naive = NaiveFilter(logits, params.draw);
    if (naive.slack < 1e-5) return;
    const int draws = 300;
    std::map<TokenId, int> counts = Histogram(logits, params, draws);
    for (const auto& [id, count] : counts) {
      CAPTURE(id);
      CHECK(naive.probabilities.contains(id));
    }
    for (const auto& [id, p] : naive.probabilities) {
      CAPTURE(id, p);
      if (p > 0.08) CHECK(counts.contains(id));
    }
  });
}

TEST_CASE("Sampler draws equal logits evenly and filters keep the lowest ids") {
  const std::vector<float> logits(5000, 0.25f);
  std::map<TokenId, int> counts = Histogram(logits, {.seed = 1}, 20000);
  CHECK(counts.size() > 4800);
  CHECK(counts.rbegin()->first > 4900);
  counts = Histogram(logits, {.draw = {.top_k = 10}, .seed = 1}, 1000);
  CHECK(counts.size() == 10);
  CHECK(counts.rbegin()->first == 9);
  counts = Histogram(logits, {.draw = {.top_p = 0.01f}, .seed = 1}, 1000);
  CHECK(counts.size() >= 49);
  CHECK(counts.rbegin()->first <= 50);
  CHECK(Histogram(logits, {.draw = {.min_p = 0.99f}, .seed = 1}, 2000).size() > 1000);
}

TEST_CASE("Sampler is greedy when top_p is 0") {
  std::mt19937 rng(6);
  SamplerScratch scratch;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<float> logits = RandomLogits(rng, 300, 1);
    logits[250] = logits[20];  // the lower of two equal ids is the likelier one
    const DrawParams draw{.top_k = seed % 2 ? 40 : 0, .top_p = 0, .repetition_penalty = 1.5f};
    const TokenId prompt[] = {20};
    Sampler zero({.draw = draw, .seed = seed}, prompt, 0);
    Sampler greedy({.draw = {.temperature = 0, .repetition_penalty = 1.5f}, .seed = seed}, prompt, 0);
    CHECK(zero.Spec().draw.top_k == 1);  // a backend that samples on the device is greedy too
    for (int i = 0; i < 10; ++i) {
      CHECK(zero.Sample(logits, scratch, nullptr).value() == greedy.Sample(logits, scratch, nullptr).value());
    }
  }
}

TEST_CASE("Sampler gives the same tokens for the same seed and others for another") {
  std::mt19937 rng(5);
  const std::vector<float> logits = RandomLogits(rng, 2000, 1);
  const auto run = [&](std::optional<uint64_t> seed, uint64_t fallback, SamplerScratch scratch) {
    Sampler sampler({.draw = {.top_p = 0.95f}, .seed = seed}, {}, fallback);
    std::vector<TokenId> out;
    for (int i = 0; i < 30; ++i) out.push_back(sampler.Sample(logits, scratch, nullptr).value());
    return out;
  };
  SamplerScratch dirty;
  dirty.weights.assign(9000, 7.0f);
  dirty.kept.assign(9000, 7.0f);
  dirty.kept_ids.assign(9000, 7);
  CHECK(run(42, 0, {}) == run(42, 9, dirty));
  CHECK(run(42, 0, {}) != run(43, 0, {}));
  CHECK(run(std::nullopt, 42, {}) == run(42, 0, {}));
}

TEST_CASE("UniformAt gives even and independent draws over seeds and indices") {
  int below[10] = {}, pairs[4] = {};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (uint64_t i = 0; i < 100; ++i) {
      const double u = UniformAt(seed, i);
      REQUIRE((u >= 0 && u < 1));
      ++below[static_cast<int>(u * 10)];
      ++pairs[(u < 0.5) * 2 + (UniformAt(seed + 1, i) < 0.5)];
    }
  }
  for (const int count : below) CHECK(std::abs(count - 2000) < 5 * std::sqrt(1800.0));
  for (const int count : pairs) CHECK(std::abs(count - 5000) < 5 * std::sqrt(3750.0));
}

TEST_CASE("ChoiceSeed is the function that docs/openai.md promises") {
  // The first numbers of java.util.SplittableRandom(0), the reference of SplitMix64.
  const uint64_t of_zero[] = {0xe220a8397b1dcdafu, 0x6e789e6aa1b965f4u, 0x06c45d188009454fu};
  for (uint64_t i = 0; i < 3; ++i) CHECK(ChoiceSeed(0, i + 1) == of_zero[i] >> 1);
  for (const uint64_t seed : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}}) {
    CHECK(ChoiceSeed(seed, 0) == seed);
    std::set<uint64_t> seeds;
    for (uint64_t i = 1; i < 128; ++i) seeds.insert(ChoiceSeed(seed, i));
    CHECK(seeds.size() == 127);
    CHECK(*seeds.rbegin() < uint64_t{1} << 63);  // JSON's seeds are signed
  }
}

TEST_CASE("Sampler shifts the logits by penalties as defined") {
  SamplerScratch scratch;
  SECTION("when repetition_penalty is set") {
    const std::vector<float> logits = {2.0f, 1.9f, 1.8f, -1.0f};
    const TokenId prompt[] = {0, 0};
    Sampler sampler({.draw = {.temperature = 0, .repetition_penalty = 1.08f}}, prompt, 0);
    CHECK(sampler.Sample(logits, scratch, nullptr).value() == 1);  // 2 / 1.08 = 1.852 < 1.9
    CHECK(sampler.Sample(logits, scratch, nullptr).value() == 0);  // 1.852 > 1.8 > 1.9 / 1.08
    const std::vector<float> negative = {-1.0f, -1.1f};
    Sampler other({.draw = {.temperature = 0, .repetition_penalty = 1.5f}}, std::span(prompt, 1), 0);
    CHECK(other.Sample(negative, scratch, nullptr).value() == 1);
  }
  SECTION("when presence_penalty is set") {
    const std::vector<float> logits = {1.0f, 0.7f, 0.65f};
    const TokenId prompt[] = {0};
    Sampler sampler({.draw = {.temperature = 0, .presence_penalty = 0.5f}}, prompt, 0);
    std::vector<TokenId> out;
    for (int i = 0; i < 5; ++i) out.push_back(sampler.Sample(logits, scratch, nullptr).value());
    CHECK(out == std::vector<TokenId>{0, 1, 2, 0, 0});
  }
  SECTION("when frequency_penalty is set") {
    const std::vector<float> logits = {1.0f, 0.0f};
    Sampler sampler({.draw = {.temperature = 0, .frequency_penalty = 0.4f}}, {}, 0);
    std::vector<TokenId> out;
    for (int i = 0; i < 6; ++i) out.push_back(sampler.Sample(logits, scratch, nullptr).value());
    CHECK(out == std::vector<TokenId>{0, 0, 0, 1, 0, 1});
  }
}

SamplingParams RandomParams(std::mt19937& rng, int32_t vocab) {
  std::uniform_real_distribution<float> unit(0, 1);
  SamplingParams params{.draw = {.temperature = rng() % 4 == 0 ? 0 : 0.3f + 2 * unit(rng)}, .seed = rng()};
  if (rng() % 2) params.draw.top_k = std::uniform_int_distribution<int32_t>(1, 2 * vocab)(rng);
  if (rng() % 2) params.draw.top_p = 0.05f + 0.94f * unit(rng);
  if (rng() % 2) params.draw.min_p = 0.2f * unit(rng);
  if (rng() % 2) params.draw.repetition_penalty = 0.5f + 1.5f * unit(rng);
  if (rng() % 2) params.draw.presence_penalty = 4 * unit(rng) - 2;
  if (rng() % 2) params.draw.frequency_penalty = 4 * unit(rng) - 2;
  return params;
}

TEST_CASE("Sampler::Spec with Accept gives the tokens and log probabilities of Sample") {
  int compared = 0;
  const Seeds seeds = ForEachSeed(300, [&](uint64_t seed) {
    std::mt19937 rng(seed);
    const auto vocab = std::uniform_int_distribution<int32_t>(2, 40)(rng);
    const SamplingParams params = RandomParams(rng, vocab);
    std::vector<TokenId> prompt(rng() % 10);
    for (TokenId& id : prompt) id = static_cast<TokenId>(rng() % vocab);
    Sampler sampler(params, prompt, 0), by_spec(params, prompt, 0);
    SamplerScratch scratch;
    for (int i = 0; i < 40; ++i) {
      const std::vector<float> logits = RandomLogits(rng, vocab, 1);
      double slack = 0;
      const SampledToken chosen = NaiveSample(logits, by_spec.Spec(), &slack);
      TokenLogprobs logprobs;
      const TokenId sampled = sampler.Sample(logits, scratch, &logprobs).value();
      by_spec.Accept(sampled);
      if (slack < 1e-5) continue;
      ++compared;
      CHECK(chosen.id == sampled);
      CHECK(chosen.logprob == Approx(logprobs.logprob).margin(1e-5));
    }
  });
  if (seeds.all()) CHECK(compared > 11000);
}

TEST_CASE("Sampler::Spec describes the next draw and lists seen tokens for penalties") {
  const TokenId prompt[] = {3, 1, 3};
  Sampler plain({.draw = {.top_k = 7, .min_p = 0.25f}, .seed = 5}, prompt, 0);
  CHECK(plain.Spec().draw.top_k == 7);
  CHECK(plain.Spec().draw.min_p == 0.25f);
  CHECK(plain.Spec().uniform == UniformAt(5, 0));
  plain.Accept(2);
  CHECK(plain.Spec().uniform == UniformAt(5, 1));
  CHECK(plain.Spec().seen.empty());

  Sampler penalised({.draw = {.presence_penalty = 1}}, prompt, 6);
  for (const TokenId id : {1, 2, 1}) penalised.Accept(id);
  const SampleSpec spec = penalised.Spec();
  CHECK(spec.uniform == UniformAt(6, 3));
  std::map<TokenId, int32_t> outputs;
  for (const SeenToken& seen : spec.seen) outputs[seen.id] = seen.outputs;
  CHECK(outputs == std::map<TokenId, int32_t>{{1, 2}, {2, 1}, {3, 0}});
  CHECK(spec.seen.size() == 3);
}

TEST_CASE("Sampler::NotFinite returns the error of Sample") {
  SamplerScratch scratch;
  Sampler sampler({}, {}, 1);
  sampler.Accept(0);
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    const std::vector<float> logits(64, bad);
    const absl::Status status = sampler.Sample(logits, scratch, nullptr).status();
    CHECK(status == sampler.NotFinite(NaiveSample(logits, sampler.Spec()).logprob));
    CHECK(status.message() == absl::StrCat("logits of output token 1 are not finite: largest is ", bad));
  }
}

TEST_CASE("Sampler returns raw log probabilities with the top sorted by likelihood") {
  std::mt19937 rng(3);
  std::vector<float> logits = RandomLogits(rng, 5000, 2);
  logits[4000] = logits[17] = 9;
  logits[3] = -kInf;
  double sum = 0;
  for (const float l : logits) sum += std::exp(double{l});
  const TokenId prompt[] = {17};
  Sampler sampler({.draw = {.temperature = 0.2f, .top_p = 0.5f, .repetition_penalty = 5}, .logprobs = 6}, prompt, 8);
  SamplerScratch scratch;
  TokenLogprobs logprobs;
  const TokenId id = sampler.Sample(logits, scratch, &logprobs).value();
  CHECK(logprobs.logprob == Approx(logits[id] - std::log(sum)).margin(1e-5));
  REQUIRE(logprobs.top.size() == 6);
  CHECK(logprobs.top[0].first == 17);
  CHECK(logprobs.top[1].first == 4000);
  std::vector<float> sorted = logits;
  std::sort(sorted.rbegin(), sorted.rend());
  for (size_t i = 0; i < 6; ++i) CHECK(logprobs.top[i].second == Approx(sorted[i] - std::log(sum)).margin(1e-5));

  Sampler chosen_only({.draw = {.temperature = 0}, .logprobs = 0}, {}, 8);
  CHECK(chosen_only.Sample(logits, scratch, &logprobs).value() == 17);
  CHECK(logprobs.top.empty());
  const std::vector<float> two = {0.5f, 0.5f};
  Sampler more_than_vocab({.logprobs = 20}, {}, 8);
  CHECK(more_than_vocab.Sample(two, scratch, &logprobs).ok());
  CHECK(logprobs.top.size() == 2);
  CHECK(logprobs.logprob == Approx(std::log(0.5)));
}

}  // namespace
}  // namespace baton
