// Lower bounds on the operations and the memory traffic of a forward pass.
#pragma once

#include <cstdint>

#include "kv/block_layout.h"
#include "model/config.h"

namespace baton {

// One step: `streams` sequences with `history` tokens each compute `tokens` more. With `logits`,
// the step also computes the logits of each sequence's last token.
struct ForwardStep {
  int64_t streams = 1;
  int64_t tokens = 1;
  int64_t history = 0;
  bool logits = false;
};

// Parameters of the projections of one layer.
inline double LayerParameters(const ModelConfig& c) {
  const double attention = static_cast<double>(2 * c.heads + 2 * c.kv_heads) * static_cast<double>(c.head_dim);
  return static_cast<double>(c.hidden) * (attention + 3.0 * static_cast<double>(c.ffn));
}
inline double QkvParameters(const ModelConfig& c) {
  return static_cast<double>(c.hidden * (c.heads + 2 * c.kv_heads) * c.head_dim);
}

// Returns the number of floating-point operations. After its keys and values, the last layer
// computes only rows that need logits.
inline double FlopsOf(const ForwardStep& step, const ModelConfig& c) {
  const auto tokens = static_cast<double>(step.tokens), history = static_cast<double>(step.history);
  const double last_rows = step.logits ? 1 : 0;
  const double layers = static_cast<double>(c.layers) - 1;
  double flops = tokens * 2 * (layers * LayerParameters(c) + QkvParameters(c));
  flops += last_rows * 2 * (LayerParameters(c) - QkvParameters(c) + static_cast<double>(c.vocab * c.hidden));
  // Sum over all tokens of the keys that a token attends to.
  const double keys = tokens * history + tokens * (tokens + 1) / 2;
  const double per_key = 4 * static_cast<double>(c.heads * c.head_dim);
  flops += per_key * (layers * keys + last_rows * (history + tokens));
  return static_cast<double>(step.streams) * flops;
}

// Returns the bytes that a step reads: each weight once, and the whole history.
inline double BytesOf(const ForwardStep& step, const ModelConfig& c, const KvLayout& layout) {
  const double layers = static_cast<double>(c.layers);
  double weights = (layers - 1) * LayerParameters(c) + QkvParameters(c);
  if (step.logits) weights += LayerParameters(c) - QkvParameters(c) + static_cast<double>(c.vocab * c.hidden);
  const double history = static_cast<double>(step.streams * step.history * layout.BlockBytes() / kBlockTokens);
  return weights * static_cast<double>(BytesPerElement(c.dtype)) + history;
}

}  // namespace baton
