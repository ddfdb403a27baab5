// What a step gives to the sampler, or in its place.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace baton {

inline constexpr TokenId kNotSampled = -1;
inline constexpr TokenId kNotFinite = -2;

// What became of a row whose slice let the backend choose.
struct SampledToken {
  TokenId id = kNotSampled;  // >= 0: chosen; kNotSampled; kNotFinite: the row's largest logit is not finite
  float logprob = 0;         // of the chosen token, see TokenLogprobs; of kNotFinite: the largest logit itself
};

// Row i belongs to the i-th slice with wants_logits. Valid until the next step.
struct LogitsView {
  const float* data = nullptr;  // [rows, vocab], of which only rows that were not sampled are given
  int64_t rows = 0;
  int64_t vocab = 0;
  std::span<const SampledToken> sampled{};  // [rows], or empty: none is sampled
  bool next_begun = false;                  // what Meanwhile::next gave is under way, and is the next pass
  bool device_waited = false;               // since it came after this pass was over
};

}  // namespace baton
