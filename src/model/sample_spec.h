// The parameters, beside the logits, of a choice of a sequence's next token.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "model/draw_params.h"

namespace baton {

// A token that penalties apply to.
struct SeenToken {
  TokenId id = 0;
  int32_t outputs = 0;  // times it was chosen; 0: in the prompt only
};

// One choice.
struct SampleSpec {
  DrawParams draw{};
  double uniform = 0;                 // the random number: UniformAt(seed, tokens drawn before)
  std::span<const SeenToken> seen{};  // of prompt and output, each id once; empty where no penalty is set
};

}  // namespace baton
