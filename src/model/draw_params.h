// The parameters that shape one draw of a token. The CPU's sampler and the device's kernel read this struct.
#pragma once

#include <cstdint>

namespace baton {

// Plain data. The penalties change the logits first. Then the members before them apply in order.
struct DrawParams {
  float temperature = 1;         // below 1e-5: greedy
  int32_t top_k = 0;             // 0: off; 1: greedy
  float top_p = 1;               // 1: off
  float min_p = 0;               // least weight, where the most likely token has 1; 0: off
  float repetition_penalty = 1;  // over prompt and output (Keskar et al. 2019)
  float presence_penalty = 0;    // over the output (OpenAI)
  float frequency_penalty = 0;   // over the output (OpenAI)
};

}  // namespace baton
