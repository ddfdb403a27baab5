// Log probabilities of tokens under the raw distribution of a row of logits.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "model/sampler.h"
#include "model/sampling_params.h"

namespace baton {

// Returns the log probability of token `id` and those of the `top` most likely tokens, without
// `rank`. Tokens of logit -inf are not among the most likely ones. REQUIRES: `max` is the largest
// of `logits` [vocab], and finite.
TokenLogprobs LogprobsOf(std::span<const float> logits, float max, TokenId id, int32_t top, SamplerScratch& scratch);

// As above, for a token of the prompt: also sets `rank`. Returns INTERNAL if any logit is NaN or
// +inf, or if all are -inf.
absl::StatusOr<TokenLogprobs> PromptLogprobsOf(std::span<const float> logits, TokenId id, int32_t top,
                                               SamplerScratch& scratch);

}  // namespace baton
