// Chooses one request's tokens from its logits. A choice depends on the request's own parameters, seed, tokens and
// logits, and on nothing else that runs (design idea 5).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "model/sample_spec.h"
#include "model/sampling_params.h"

namespace baton {

// Working memory of Sample, kept by the caller so that steps do not allocate. One per thread.
struct SamplerScratch {
  std::vector<float> logits;      // penalised, [vocab]
  std::vector<float> weights;     // [vocab]
  std::vector<float> kept;        // weights of the candidates, [vocab]
  std::vector<TokenId> kept_ids;  // their tokens, ascending, [vocab]
};

// DrawParams states what each parameter does, and in which order they apply. Among equal logits the
// lowest id counts as the more likely. The i-th draw is a hash of (seed, i).
class Sampler {
 public:
  // `params` are valid; `prompt` counts for the repetition penalty. `default_seed` is used if `params` has none.
  Sampler(const SamplingParams& params, std::span<const TokenId> prompt, uint64_t default_seed);

  // The next token from logits [vocab], and its log probabilities where `logprobs` is given. A logit may be -inf;
  // INTERNAL if any is NaN or +inf or if all are -inf.
  absl::StatusOr<TokenId> Sample(std::span<const float> logits, SamplerScratch& scratch, TokenLogprobs* logprobs);

  // Parameters for a backend that samples on the device. Spec(k) describes the k-th token ahead and lacks the tokens
  // in between. It is valid until the next Sample or Accept.
  SampleSpec Spec(int64_t further = 0) const;
  // Records the token that the backend chose.
  void Accept(TokenId id);
  // The error of logits whose largest is not finite.
  absl::Status NotFinite(float largest) const;

 private:
  void Count(TokenId id, int32_t outputs);
  void Penalize(std::span<float> logits) const;
  TokenId Choose(std::span<const float> logits, float max, SamplerScratch& scratch) const;
  TokenId Draw(std::span<const float> logits, float max, SamplerScratch& scratch) const;
  int64_t KeepCandidates(std::span<const float> weights, SamplerScratch& scratch) const;

  DrawParams draw_;
  bool penalized_;
  int32_t top_logprobs_;
  uint64_t seed_;
  uint64_t drawn_ = 0;

  std::vector<SeenToken> seen_;  // empty unless penalized_
  absl::flat_hash_map<TokenId, size_t> seen_index_;
};

// The i-th number in [0, 1) of the stream named `seed`.
double UniformAt(uint64_t seed, uint64_t i);

}  // namespace baton
