// A test of the distribution from which a sampler draws. It draws one token with each of many seeds
// and compares the counts with the probabilities that a reference in double precision computes.
//
// The comparison is Pearson's chi-square test at a significance level of 1e-4. Random draws of a
// correct sampler would exceed it once in 10,000 comparisons. There is no such false alarm, because
// logits and seeds are fixed: a sampler that passes once always passes. With 5,000 seeds, a
// temperature that is wrong by a tenth fails. The nightly rung `seeds` has ten times as many, and
// then an error of 3 % fails. A token that the reference excludes fails at its first draw.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "catch.h"
#include "model/reference_sampler.h"
#include "model/sampler.h"
#include "seeds.h"

namespace baton {

// Parameters, and the tokens to which their penalties apply.
struct DistributionSetting {
  std::string name;
  DrawParams draw;
  std::vector<TokenId> prompt = {};
  std::vector<TokenId> output = {};
};

inline std::vector<DistributionSetting> DistributionSettings() {
  // Half of the small rows' ids are in the prompt, and some in the output, up to three times.
  std::vector<TokenId> prompt, output;
  for (TokenId id = 0; id < 60; ++id) {
    if (id % 2 == 0) prompt.insert(prompt.end(), {id, id});
    output.insert(output.end(), static_cast<size_t>(id % 5 == 0 ? 1 + id % 3 : 0), id);
  }
  return {
      {"temperature 1", {.temperature = 1}},
      {"temperature 0.6", {.temperature = 0.6f}},
      {"temperature 3", {.temperature = 3}},
      {"top_k", {.temperature = 1, .top_k = 10}},
      {"top_k and temperature", {.temperature = 1.7f, .top_k = 25}},
      {"top_p", {.temperature = 1, .top_p = 0.5f}},
      {"top_p and temperature", {.temperature = 0.7f, .top_p = 0.9f}},
      {"min_p", {.temperature = 1, .min_p = 0.05f}},
      {"all filters", {.temperature = 1.3f, .top_k = 20, .top_p = 0.9f, .min_p = 0.07f}},
      {"repetition penalty", {.temperature = 1, .repetition_penalty = 1.4f}, prompt, output},
      {"presence and frequency penalty",
       {.temperature = 1, .presence_penalty = 0.8f, .frequency_penalty = 0.3f},
       prompt,
       output},
      {"negative penalties",
       {.temperature = 1, .repetition_penalty = 0.8f, .presence_penalty = -0.9f, .frequency_penalty = -0.2f},
       prompt,
       output},
      {"filters and penalties",
       {.temperature = 0.8f,
        .top_k = 20,
        .top_p = 0.95f,
        .min_p = 0.01f,
        .repetition_penalty = 1.2f,
        .frequency_penalty = 0.4f},
       prompt,
       output},
  };
}

// The logits of a distribution test. Those of `unnamed` ids are -inf in `masked`.
struct DistributionLogits {
  std::string name;
  std::vector<float> raw;
  std::vector<TokenId> unnamed;
  std::vector<float> masked;
};

struct DistributionRow {
  std::string name;
  size_t vocab = 0;
  bool ties = false;
  bool unnamed = false;  // some ids are
};

inline DistributionLogits MakeDistributionLogits(const DistributionRow& row) {
  const size_t vocab = row.vocab;
  DistributionLogits logits{.name = row.name, .raw = std::vector<float>(vocab), .unnamed = {}, .masked = {}};
  std::mt19937 random(static_cast<uint32_t>(vocab));
  for (float& logit : logits.raw) {
    // The sum of 12 uniform numbers is nearly normal. Standard libraries differ in their normal
    // distributions.
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += random() * 0x1p-32;
    logit = static_cast<float>(1.5 * sum);
    if (row.ties) logit = std::round(2 * logit) / 2;
  }
  // Holes, with the two likeliest tokens among them, and padding.
  if (row.unnamed) {
    logits.raw[5] = logits.raw[30] = 9;
    for (size_t id = 5; id < vocab; id += id < vocab - 7 ? 25 : 1) logits.unnamed.push_back(static_cast<TokenId>(id));
  }
  logits.masked = logits.raw;
  for (const TokenId id : logits.unnamed) {
    logits.masked[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
  }
  return logits;
}

// Small rows show a wrong temperature with the fewest seeds.
inline std::vector<DistributionLogits> SmallDistributionLogits() {
  return {MakeDistributionLogits({.name = "61 ids", .vocab = 61}),
          MakeDistributionLogits({.name = "61 ids, some unnamed", .vocab = 61, .ties = true, .unnamed = true})};
}

// A sampler that has seen the tokens of the setting.
inline Sampler SamplerOf(const DistributionSetting& setting, uint64_t seed) {
  Sampler sampler({.draw = setting.draw, .seed = seed}, setting.prompt, 0);
  for (const TokenId id : setting.output) sampler.Accept(id);
  return sampler;
}

// Returns the value that a chi-square variable exceeds with probability 1e-4, by the approximation
// of Wilson and Hilferty (1931).
inline double ChiSquareLimit(int degrees) {
  constexpr double kDeviations = 3.719;  // a normal variable exceeds it with probability 1e-4
  const double part = 2 / (9.0 * degrees);
  return degrees * std::pow(1 - part + kDeviations * std::sqrt(part), 3);
}

// Compares how often each token was drawn with its probability. Tokens that are expected fewer than
// five times count together.
inline void CheckDistribution(const std::vector<int64_t>& counts, const std::map<TokenId, double>& probabilities,
                              int64_t draws) {
  double statistic = 0, rare_expected = 0, rare = 0;
  int cells = 0;
  const auto add = [&](double expected, double got) {
    statistic += (got - expected) * (got - expected) / expected;
    ++cells;
  };
  for (TokenId id = 0; id < std::ssize(counts); ++id) {
    const auto found = probabilities.find(id);
    const double expected = found == probabilities.end() ? 0 : found->second * static_cast<double>(draws);
    const auto got = static_cast<double>(counts[static_cast<size_t>(id)]);
    INFO("token " << id << ", drawn " << got << " times");
    if (expected == 0) CHECK(got == 0);
    if (expected >= 5) {
      add(expected, got);
    } else {
      rare_expected += expected;
      rare += got;
    }
  }
  if (rare_expected >= 5) add(rare_expected, rare);
  REQUIRE(cells > 2);
  INFO(cells - 1 << " degrees of freedom, statistic " << statistic);
  CHECK(statistic < ChiSquareLimit(cells - 1));
}

// Draws a token with each of the seeds [0, draws), from logits in which unnamed ids are not masked
// yet. Returns how often each id was drawn.
using DrawMany =
    std::function<std::vector<int64_t>(const DistributionSetting&, const DistributionLogits&, int64_t draws)>;

// Tests all settings with these logits. With BATON_SEED there is nothing to test, because the seeds
// are fixed.
inline void CheckDistributions(const std::vector<DistributionLogits>& all_logits, const DrawMany& draw_many) {
  const Seeds seeds(5000);
  if (!seeds.all()) return;
  const auto draws = static_cast<int64_t>(seeds.count());
  for (const DistributionLogits& logits : all_logits) {
    for (const DistributionSetting& setting : DistributionSettings()) {
      INFO(logits.name << ", " << setting.name << ", " << draws << " seeds");
      const Sampler sampler = SamplerOf(setting, 0);
      const Naive expected = NaiveFilter(NaivePenalties(logits.masked, sampler.Spec()), setting.draw);
      REQUIRE(expected.slack > 1e-6);  // rounding moves no token over a filter's threshold
      CheckDistribution(draw_many(setting, logits, draws), expected.probabilities, draws);
    }
  }
}

}  // namespace baton
