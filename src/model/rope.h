// Rotary position embedding (Su et al., arXiv 2104.09864). It pairs the two halves of a head, as
// Hugging Face transformers does.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace baton {

// Returns the frequencies [head_dim / 2] in radians per token. Rope rotates pair i of a head,
// (x[i], x[i + head_dim / 2]), by the angle position * frequencies[i]. If the config has a
// rope_scaling (Llama 3.1), it is applied. The frequencies are fp32, as in transformers.
std::vector<float> RopeFrequencies(const ModelConfig& config);

// A table of cosines and sines by position. It grows on demand, so a long context costs neither
// time nor memory before a sequence reaches it.
class RopeTable {
 public:
  explicit RopeTable(const ModelConfig& config) : frequencies_(RopeFrequencies(config)) {}

  // Computes the missing rows of positions [0, positions).
  void Extend(int64_t positions);
  // Returns [head_dim]: head_dim / 2 cosines, then as many sines. Valid until the next Extend.
  // REQUIRES: an earlier Extend covered `position`.
  const float* Row(int64_t position) const { return &rows_[position * 2 * frequencies_.size()]; }

 private:
  std::vector<float> frequencies_;
  std::vector<float> rows_;  // [positions, head_dim]
};

}  // namespace baton
