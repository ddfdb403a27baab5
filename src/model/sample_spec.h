// What a choice of a sequence's next token depends on, beside its logits.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace baton {

// A token that penalties apply to.
struct SeenToken {
  TokenId id = 0;
  int32_t outputs = 0;  // times it was chosen; 0: in the prompt only
};

// One choice. What is done with it, and in which order, says model/sampler.h; the limits say SamplingParams.
struct SampleSpec {
  float temperature = 1;  // below 1e-5: greedy
  int32_t top_k = 0;      // 0: off; 1: greedy
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  double uniform = 0;                 // what is drawn: UniformAt(seed, tokens drawn before)
  std::span<const SeenToken> seen{};  // of prompt and output, each id once; empty where no penalty is set
};

}  // namespace baton
