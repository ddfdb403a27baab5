// A reference of sampling in double precision with a full sort, for tests of faster samplers and of
// samplers on a device.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <vector>

#include "model/draw_params.h"
#include "model/logits.h"
#include "model/sample_spec.h"

namespace baton {

// The tokens that temperature, top-k, top-p and min-p keep. `slack` is the least distance of a sum
// or a weight to a boundary.
struct Naive {
  std::map<TokenId, double> probabilities;
  double slack = 1;
};
inline Naive NaiveFilter(std::span<const float> logits, const DrawParams& draw) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  std::vector<double> w;
  for (const TokenId id : order) w.push_back(std::exp((double{logits[id]} - logits[order[0]]) / draw.temperature));
  Naive result;
  size_t kept = w.size();
  if (draw.top_k > 0) kept = std::min<size_t>(kept, draw.top_k);
  if (draw.top_p < 1) {
    const double target = draw.top_p * std::accumulate(w.begin(), w.begin() + kept, 0.0);
    double sum = 0;
    size_t n = 0;
    while (n < kept && sum < target) sum += w[n++];
    result.slack = std::min({result.slack, (sum - target) / target, (target - (sum - w[n - 1])) / target});
    kept = n;
  }
  // If two different logits beside the cut have nearly equal weights, the weights of a sampler in
  // single precision may be equal. That sampler then keeps the token with the lower id.
  if (kept < w.size() && logits[order[kept - 1]] != logits[order[kept]]) {
    result.slack = std::min(result.slack, w[kept - 1] - w[kept]);
  }
  if (draw.min_p > 0) {
    size_t n = 0;
    while (n < kept && w[n] >= draw.min_p) ++n;
    for (size_t i : {n - 1, n}) {
      if (i < w.size()) result.slack = std::min(result.slack, std::abs(w[i] - draw.min_p));
    }
    kept = n;
  }
  const double total = std::accumulate(w.begin(), w.begin() + kept, 0.0);
  for (size_t i = 0; i < kept; ++i) result.probabilities[order[i]] = w[i] / total;
  return result;
}

inline std::vector<float> NaiveBiases(std::span<const float> logits, const SampleSpec& spec) {
  std::vector<float> biased(logits.begin(), logits.end());
  if (spec.only_biased) std::ranges::fill(biased, -std::numeric_limits<float>::infinity());
  for (const auto& [id, bias] : spec.biases) {
    const auto at = static_cast<size_t>(id);
    if (at < biased.size()) biased[at] = logits[at] + bias;
  }
  return biased;
}

// Returns the logits after biases and penalties.
inline std::vector<float> NaivePenalties(std::span<const float> logits, const SampleSpec& spec) {
  std::vector<float> penalised = NaiveBiases(logits, spec);
  for (const SeenToken& seen : spec.seen) {
    float& logit = penalised[static_cast<size_t>(seen.id)];
    logit = logit > 0 ? logit / spec.draw.repetition_penalty : logit * spec.draw.repetition_penalty;
    if (seen.outputs == 0) continue;
    logit -= spec.draw.presence_penalty + spec.draw.frequency_penalty * static_cast<float>(seen.outputs);
  }
  return penalised;
}

// Returns the choice that `spec` describes from logits [vocab]. `slack` receives the smallest
// distance of the filters and of the draw to a boundary.
inline SampledToken NaiveSample(std::span<const float> logits, const SampleSpec& spec, double* slack = nullptr) {
  float max = logits[0];
  for (const float logit : logits) max = std::isnan(logit) || logit > max ? logit : max;
  if (!std::isfinite(max)) return {.id = kNotFinite, .logprob = max};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - max);

  const std::vector<float> biased = NaiveBiases(logits, spec);
  const auto excluded = [](float logit) { return logit == -std::numeric_limits<float>::infinity(); };
  if (std::ranges::all_of(biased, excluded)) return {.id = kNothingAllowed};
  const bool greedy = spec.draw.temperature < 1e-5f;
  DrawParams draw = spec.draw;
  if (greedy) draw.temperature = 1;
  if (greedy) draw.top_k = 1;
  const Naive naive = NaiveFilter(NaivePenalties(logits, spec), draw);
  double least = naive.slack, left = spec.uniform;
  auto chosen = naive.probabilities.begin();
  for (auto next = chosen; left >= 0 && next != naive.probabilities.end(); ++next) {
    chosen = next;
    left -= chosen->second;
    least = std::min(least, std::abs(left));
  }
  if (slack != nullptr) *slack = least;
  return {.id = chosen->first, .logprob = static_cast<float>(double{logits[chosen->first]} - max - std::log(sum))};
}

}  // namespace baton
