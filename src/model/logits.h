// The result of a forward pass: logits for the sampler, or tokens that the backend sampled itself.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace baton {

// Codes of SampledToken::id.
inline constexpr TokenId kNotSampled = -1;      // the backend returns the row's logits instead
inline constexpr TokenId kNotFinite = -2;       // the row's largest logit is not finite
inline constexpr TokenId kNothingAllowed = -3;  // the biases of the row exclude all tokens

// The token that the backend sampled for one row, if any.
struct SampledToken {
  // The chosen token if >= 0, otherwise one of the codes above.
  TokenId id = kNotSampled;
  // The log probability of the chosen token, as in TokenLogprobs. For kNotFinite, the largest
  // logit.
  float logprob = 0;
};

// The logits of a pass: one row for each token whose logits a slice requests, in the order of the
// batch. Valid until the next step.
struct LogitsView {
  // [rows, vocab]. The contents of a row that the backend sampled are unspecified.
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t vocab = 0;
  // [rows], or empty if the backend sampled no row.
  std::span<const SampledToken> sampled{};
  // True if the backend has enqueued the batch from Meanwhile::next. The next pass must then be
  // this batch's.
  bool next_started = false;
  // True if next_started, but the device finished this pass first and was idle in between.
  bool device_waited = false;
};

}  // namespace baton
