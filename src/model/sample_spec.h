// The inputs, besides the logits, that determine the choice of a sequence's next token.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "model/draw_params.h"

namespace baton {

// A token that penalties apply to.
struct SeenToken {
  TokenId id = 0;
  int32_t outputs = 0;  // occurrences in the output; 0: the token is only in the prompt
};

// One choice. model/sampler.h describes the parameters and the order in which they apply.
struct SampleSpec {
  DrawParams draw{};
  // The random number: UniformAt(seed, number of tokens drawn before).
  double uniform = 0;
  // The tokens of prompt and output, each id once. Empty if no penalty is set.
  std::span<const SeenToken> seen{};
  // The biases of tokens, each id once.
  std::span<const TokenBias> biases{};
  // All tokens without a bias are excluded.
  bool only_biased = false;
};

}  // namespace baton
