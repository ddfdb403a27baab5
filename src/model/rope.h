// Rotary position embedding (Su et al., arXiv 2104.09864), with the halves of a head paired as Hugging Face does.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace baton {

// Pair i of a head, (x[i], x[i + head_dim / 2]), is turned by the angle position * frequencies[i].
// [head_dim / 2], radians per token, scaled where the config says so (Llama 3.1). In fp32, as transformers has them.
std::vector<float> RopeFrequencies(const ModelConfig& config);

// Cosines and sines by position, computed when a position is first reached: a long context costs nothing until then.
class RopeTable {
 public:
  explicit RopeTable(const ModelConfig& config) : frequencies_(RopeFrequencies(config)) {}

  // Makes rows for positions [0, positions).
  void Extend(int64_t positions);
  // [head_dim]: head_dim / 2 cosines, then as many sines. Valid until Extend.
  const float* Row(int64_t position) const { return &rows_[position * 2 * frequencies_.size()]; }

 private:
  std::vector<float> frequencies_;
  std::vector<float> rows_;  // [positions, head_dim]
};

}  // namespace baton
