// What a step gives to the sampler.
#pragma once

#include <cstdint>

namespace baton {

// Row i belongs to the i-th slice with wants_logits. Valid until the next step.
struct LogitsView {
  const float* data = nullptr;  // [rows, vocab]
  int64_t rows = 0;
  int64_t vocab = 0;
};

}  // namespace baton
