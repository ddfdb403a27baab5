// A model's tensors as views into memory-mapped safetensors, checked against the config and not yet packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/sha256.h"
#include "model/config.h"

namespace baton {

// Row-major [rows, cols] (cols = 1 for a vector), little endian, valid as long as the Weights that gave it.
struct Tensor {
  const std::byte* data = nullptr;  // null: this model has no such tensor
  DType dtype = DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from row to row; 0: cols

  int64_t row_stride() const { return stride == 0 ? cols : stride; }
};

// Projections are [out, in], so y = W x.
struct LayerWeights {
  Tensor attention_norm;          // [hidden]
  Tensor q, k, v;                 // [heads*head_dim, hidden], [kv_heads*head_dim, hidden] twice
  Tensor q_bias, k_bias, v_bias;  // Qwen2.5
  Tensor q_norm, k_norm;          // [head_dim], Qwen3
  Tensor o;                       // [hidden, heads*head_dim]
  Tensor ffn_norm;                // [hidden]
  Tensor gate, up;                // [ffn, hidden]
  Tensor down;                    // [hidden, ffn]
};

// Keeps the mapped files open.
class Weights {
 public:
  virtual ~Weights() = default;
  ModelConfig config;
  Tensor embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  Tensor final_norm;  // [hidden]
  Tensor lm_head;     // [vocab, hidden]; the embedding itself where tied
  // SHA-256 over the config's computing fields and all tensor bytes: the identity of the KV this module makes (design
  // 3).
  Digest digest{};
};

// Maps model.safetensors, or the shards that model.safetensors.index.json lists. Every error names file, tensor and
// reason and comes before any allocation that a hostile header could size.
absl::StatusOr<std::unique_ptr<Weights>> LoadWeights(const std::string& directory);

}  // namespace baton
