#include "model/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "model/sampler_kernels.h"
#include "model/token_logprobs.h"

namespace baton {
namespace {

// Below this temperature, logits / temperature could overflow.
constexpr float kGreedyBelow = 1e-5f;
constexpr int64_t kDrawChunk = 1024;

const SamplerKernels& Kernels() { return FastestSamplerKernels(); }

// The increment of SplitMix64's state (Steele, Lea and Flood 2014).
constexpr uint64_t kGamma = 0x9e3779b97f4a7c15u;

// The finaliser of SplitMix64. It is a bijection in which each output bit depends on all input
// bits.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <typename T>
void Grow(std::vector<T>& v, size_t size) {
  if (v.size() < size) v.resize(size);
}

// Draws an index with probability proportional to its weight: the first index at which the running
// sum of `weights` exceeds u times their total. REQUIRES: all weights [n] are >= 0, and one is 1.
int64_t Pick(const float* weights, int64_t n, double u) {
  double left = u * Kernels().tail(weights, n, 0).sum;
  int64_t begin = 0;
  for (; begin + kDrawChunk < n; begin += kDrawChunk) {
    const double chunk = Kernels().tail(weights + begin, kDrawChunk, 0).sum;
    if (left < chunk) break;
    left -= chunk;
  }
  for (int64_t i = begin; i < n; ++i) {
    left -= weights[i];
    if (left < 0) return i;
  }
  // Rounding has moved the target past the end. Return the last index with a positive weight.
  int64_t last = n - 1;
  while (last > 0 && weights[last] == 0) --last;
  return last;
}

// Returns the largest float t >= 0 for which enough(tail at t) holds. REQUIRES: enough(tail at 0)
// holds, and all weights are <= 1. The function bisects over bit patterns, whose order is that of
// the non-negative floats.
template <typename Enough>
float LargestThreshold(std::span<const float> weights, Enough enough) {
  uint32_t low = 0;
  uint32_t high = std::bit_cast<uint32_t>(1.0f) + 1;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    const auto tail = Kernels().tail(weights.data(), std::ssize(weights), std::bit_cast<float>(middle));
    (enough(tail) ? low : high) = middle;
  }
  return std::bit_cast<float>(low);
}

// Returns the count and the sum of the weights above `threshold`.
SamplerKernels::Tail Above(std::span<const float> weights, float threshold) {
  return Kernels().tail(weights.data(), std::ssize(weights), std::nextafter(threshold, 2.0f));
}

// Keeps, in place, the weights above `threshold` and the first `ties` weights that equal it, with
// their ids. Returns the number of kept weights.
int64_t Keep(std::span<float> weights, std::span<TokenId> ids, float threshold, int64_t ties) {
  int64_t size = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const float w = weights[i];
    const bool tie = w == threshold && ties > 0;
    ties -= tie;
    weights[size] = w;
    ids[size] = ids[i];
    size += w > threshold || tie;
  }
  return size;
}

// Returns a lower bound of the thresholds of top-k and top-p, found in coarse steps.
float CoarseThreshold(std::span<const float> weights, int64_t top_k, double top_p_sum) {
  for (const float threshold : {0.25f, 3e-2f, 4e-3f, 5e-4f, 6e-5f, 1e-6f}) {
    const auto tail = Kernels().tail(weights.data(), std::ssize(weights), threshold);
    if (top_k > 0 ? tail.count >= top_k : tail.sum >= top_p_sum) return threshold;
  }
  return 0;
}

// Copies the logits and adds the biases of one token.
void Bias(const TokenBiases& biases, std::span<const float> logits, std::span<float> to) {
  if (biases.only) {
    std::ranges::fill(to, kExcluded);
  } else {
    std::ranges::copy(logits, to.begin());
  }
  for (const auto& [id, bias] : biases.list) {
    if (static_cast<size_t>(id) < logits.size()) to[id] = logits[id] + bias;
  }
}

}  // namespace

double UniformAt(uint64_t seed, uint64_t i) {
  const uint64_t bits = Mix(Mix(seed) + (i + 1) * kGamma);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

uint64_t ChoiceSeed(uint64_t seed, uint64_t choice) { return choice == 0 ? seed : Mix(seed + choice * kGamma) >> 1; }

Sampler::Sampler(const SamplingParams& params, std::span<const TokenId> prompt, uint64_t default_seed, TokenRules rules)
    : draw_(params.draw),
      penalized_(draw_.repetition_penalty != 1 || draw_.presence_penalty != 0 || draw_.frequency_penalty != 0),
      top_logprobs_(params.logprobs.value_or(0)),
      seed_(params.seed.value_or(default_seed)),
      constraints_(params, std::move(rules)) {
  if (draw_.top_p == 0) draw_.top_k = 1;  // no share of the weights: the likeliest token alone
  for (const TokenId id : prompt) Count(id, 0);
}

void Sampler::Count(TokenId id, int32_t outputs) {
  if (!penalized_) return;
  const auto [entry, added] = seen_index_.try_emplace(id, seen_.size());
  if (added) seen_.push_back({id, 0});
  seen_[entry->second].outputs += outputs;
}

void Sampler::Penalize(std::span<float> logits) const {
  for (const SeenToken& seen : seen_) {
    if (static_cast<size_t>(seen.id) >= logits.size()) continue;
    float& logit = logits[seen.id];
    logit = logit > 0 ? logit / draw_.repetition_penalty : logit * draw_.repetition_penalty;
    if (seen.outputs > 0) logit -= draw_.presence_penalty + draw_.frequency_penalty * static_cast<float>(seen.outputs);
  }
}

SampleSpec Sampler::Spec(int64_t ahead) const {
  const TokenBiases biases = constraints_.At(ahead);
  return {.draw = draw_,
          .uniform = UniformAt(seed_, drawn_ + static_cast<uint64_t>(ahead)),
          .seen = seen_,
          .biases = biases.list,
          .only_biased = biases.only};
}

void Sampler::Accept(TokenId id) {
  ++drawn_;
  constraints_.Accept(id);
  Count(id, 1);
}

absl::Status Sampler::NotFinite(float largest) const {
  return absl::InternalError(absl::StrCat("logits of output token ", drawn_, " are not finite: largest is ", largest));
}

absl::Status Sampler::NothingAllowed() const {
  return absl::InvalidArgumentError(absl::StrCat("allowed_token_ids, bad_words, min_tokens and logit_bias together ",
                                                 "exclude all tokens as token ", drawn_, " of the output"));
}

absl::StatusOr<TokenId> Sampler::Sample(std::span<const float> logits, SamplerScratch& scratch,
                                        TokenLogprobs* logprobs) {
  BATON_CHECK(!logits.empty(), "no logits");
  const auto n = std::ssize(logits);
  const float max = Kernels().max(logits.data(), n);
  if (!std::isfinite(max)) return NotFinite(max);
  ASSIGN_OR_RETURN(const TokenId id, Choose(logits, max, scratch));
  Accept(id);

  if (logprobs != nullptr) *logprobs = LogprobsOf(logits, max, id, top_logprobs_, scratch);
  return id;
}

// REQUIRES: `max` is the largest of the logits, and finite.
absl::StatusOr<TokenId> Sampler::Choose(std::span<const float> logits, float max, SamplerScratch& scratch) const {
  const TokenBiases biases = constraints_.At(0);
  if (penalized_ || !biases.empty()) {
    Grow(scratch.logits, logits.size());
    const std::span shaped = std::span(scratch.logits).first(logits.size());
    Bias(biases, logits, shaped);
    Penalize(shaped);
    logits = shaped;
    max = Kernels().max(logits.data(), std::ssize(logits));
    if (max == kExcluded) return NothingAllowed();
  }
  const bool greedy = draw_.temperature < kGreedyBelow || draw_.top_k == 1;
  if (!greedy) return Draw(logits, max, scratch);
  return static_cast<TokenId>(std::find(logits.begin(), logits.end(), max) - logits.begin());
}

TokenId Sampler::Draw(std::span<const float> logits, float max, SamplerScratch& scratch) const {
  const auto n = std::ssize(logits);
  Grow(scratch.weights, logits.size());
  Kernels().exp_weights(logits.data(), n, max, 1 / draw_.temperature, scratch.weights.data());
  const std::span<const float> weights = std::span(scratch.weights).first(logits.size());
  const double u = UniformAt(seed_, drawn_);
  if ((draw_.top_k == 0 || draw_.top_k >= n) && draw_.top_p >= 1 && draw_.min_p <= 0) {
    return static_cast<TokenId>(Pick(weights.data(), n, u));
  }
  const int64_t kept = KeepCandidates(weights, scratch);
  return scratch.kept_ids[Pick(scratch.kept.data(), kept, u)];
}

// Writes the candidates that top-k, top-p and min-p keep to scratch.kept and scratch.kept_ids, and
// returns their number. Each filter keeps a prefix of the order (weight descending, id ascending).
// A threshold and a number of ties at it describe such a prefix, so no sorting is needed.
int64_t Sampler::KeepCandidates(std::span<const float> weights, SamplerScratch& scratch) const {
  const auto n = std::ssize(weights);
  const int64_t top_k = draw_.top_k < n ? draw_.top_k : 0;
  const bool top_p = draw_.top_p < 1;
  const double target = top_p && top_k == 0 ? draw_.top_p * Kernels().tail(weights.data(), n, 0).sum : 0;
  const float coarse = top_k == 0 && !top_p ? draw_.min_p : CoarseThreshold(weights, top_k, target);

  Grow(scratch.kept, weights.size());
  Grow(scratch.kept_ids, weights.size());
  int64_t size = Kernels().compact(weights.data(), n, coarse, scratch.kept.data(), scratch.kept_ids.data());
  const auto kept = [&] { return std::span(scratch.kept).first(size); };
  const auto ids = [&] { return std::span(scratch.kept_ids).first(size); };
  if (top_k > 0) {
    const float t = LargestThreshold(kept(), [&](const auto& tail) { return tail.count >= top_k; });
    size = Keep(kept(), ids(), t, top_k - Above(kept(), t).count);
  }
  if (top_p) {
    const double sum = top_k > 0 ? draw_.top_p * Kernels().tail(kept().data(), size, 0).sum : target;
    const float t = LargestThreshold(kept(), [&](const auto& tail) { return tail.sum >= sum; });
    const double ties = t > 0 ? std::ceil((sum - Above(kept(), t).sum) / t) : static_cast<double>(size);
    size = Keep(kept(), ids(), t, std::max<int64_t>(1, static_cast<int64_t>(std::min<double>(ties, size))));
  }
  if (draw_.min_p > 0) size = Keep(kept(), ids(), std::nextafter(draw_.min_p, 0.0f), 0);
  return size;
}

}  // namespace baton
