// The parameters that shape one draw of a token. The sampler on the CPU and the kernel on the
// device both read this struct.
#pragma once

#include <cstdint>

namespace baton {

// Plain data, copied to the device byte for byte. SamplingFields() lists the valid ranges.
//
// The constraints of the token (TokenBias) change the logits first, as in vLLM's V1 sampler
// (vllm/v1/sample/sampler.py). Penalties follow: repetition, then presence, then frequency. After
// that the temperature applies, then top-k, then top-p to the tokens that top-k keeps, then min-p.
struct DrawParams {
  float temperature = 1;         // greedy below 1e-5
  int32_t top_k = 0;             // 0: off; 1: greedy
  float top_p = 1;               // 1: off; 0: greedy
  float min_p = 0;               // least probability, relative to the likeliest token; 0: off
  float repetition_penalty = 1;  // on tokens of prompt and output (Keskar et al. 2019); 1: off
  float presence_penalty = 0;    // on tokens of the output (OpenAI); 0: off
  float frequency_penalty = 0;   // on tokens of the output, for each occurrence (OpenAI); 0: off
};

// A number that is added to one token's logit before penalties. -inf excludes the token.
struct TokenBias {
  int32_t id = 0;
  float bias = 0;
  bool operator==(const TokenBias&) const = default;
};

}  // namespace baton
