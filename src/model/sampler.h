// The sampler of one request, which chooses tokens from logits on the CPU. A choice depends only on
// the request's own parameters, seed, tokens and logits (design idea 5).
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
#include "model/token_constraints.h"

namespace baton {

// The working memory of Sampler::Sample. The caller keeps it so that steps do not allocate. Each
// thread needs its own.
struct SamplerScratch {
  std::vector<float> logits;      // with biases and penalties, [vocab]
  std::vector<float> weights;     // [vocab]
  std::vector<float> kept;        // weights of the candidates, [vocab]
  std::vector<TokenId> kept_ids;  // their tokens, ascending, [vocab]
};

// Chooses tokens. DrawParams states the order in which the parameters apply. Among equal logits,
// the token with the lower id counts as more likely. The i-th random number is a hash of (seed, i).
class Sampler {
 public:
  // The repetition penalty counts the tokens of `prompt`. `default_seed` applies if `params` has no
  // seed. Without `rules`, the sampler ignores bad words, the model's end ids and the bound on
  // thinking. REQUIRES: `params` passes Validate.
  Sampler(const SamplingParams& params, std::span<const TokenId> prompt, uint64_t default_seed, TokenRules rules = {});

  // Chooses and records the next token from logits [vocab]. Fills `logprobs` unless it is null. A
  // logit may be -inf. Returns INTERNAL if any logit is NaN or +inf, or if all are -inf. Returns
  // INVALID_ARGUMENT if the constraints exclude all tokens.
  absl::StatusOr<TokenId> Sample(std::span<const float> logits, SamplerScratch& scratch, TokenLogprobs* logprobs);

  // Returns the parameters for a backend that samples on the device. Spec(0) describes the next
  // token. Spec(k) describes the token k positions later, and its `seen` lacks the k tokens in
  // between. The result is valid until the next Sample or Accept. REQUIRES: IsSettled(k).
  SampleSpec Spec(int64_t ahead = 0) const;
  // Returns whether the constraints of the token `ahead` positions after the next one are the same
  // whatever the tokens in between are.
  bool IsSettled(int64_t ahead) const { return constraints_.IsSettled(ahead); }
  // Records a token that the backend chose.
  void Accept(TokenId id);
  // Returns the error for logits whose largest value is not finite.
  absl::Status NotFinite(float largest) const;
  // Returns the error for constraints that exclude all tokens.
  absl::Status NothingAllowed() const;

 private:
  void Count(TokenId id, int32_t outputs);
  void Penalize(std::span<float> logits) const;
  absl::StatusOr<TokenId> Choose(std::span<const float> logits, float max, SamplerScratch& scratch) const;
  TokenId Draw(std::span<const float> logits, float max, SamplerScratch& scratch) const;
  int64_t KeepCandidates(std::span<const float> weights, SamplerScratch& scratch) const;

  DrawParams draw_;
  bool penalized_;
  int32_t top_logprobs_;
  uint64_t seed_;
  uint64_t drawn_ = 0;
  TokenConstraints constraints_;

  std::vector<SeenToken> seen_;  // empty unless penalized_
  absl::flat_hash_map<TokenId, size_t> seen_index_;
};

// Returns the i-th number, in [0, 1), of the random sequence of `seed`.
double UniformAt(uint64_t seed, uint64_t i);

// Returns the seed of one of several choices for a prompt. Choice 0 has `seed`. Choice i has the
// i-th number of SplitMix64 with the state `seed`, shifted right by one bit, so that it fits a
// signed integer. docs/openai.md promises this function to users.
uint64_t ChoiceSeed(uint64_t seed, uint64_t choice);

}  // namespace baton
