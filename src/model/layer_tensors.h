// The layer tensor table: each tensor of a model is one row.
//
// Loading, shape checks, the module digest, tensor parallelism, sizes and packing iterate over the
// rows. A family that adds a tensor adds a member and a row here. The forward pass reads a layer's
// weights by role.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "model/config.h"

namespace baton {

// Row-major [rows, cols] (cols = 1 for a vector), little endian. Valid as long as the Weights that
// it belongs to.
struct Tensor {
  const std::byte* data = nullptr;  // null: this model has no such tensor
  DType dtype = DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from row to row; 0: cols

  int64_t row_stride() const { return stride == 0 ? cols : stride; }
};

// The tensors of one layer. Projections are [out, in], so y = W x. kLayerTensors has their sizes.
struct LayerWeights {
  Tensor attention_norm;
  Tensor q, k, v;
  Tensor q_bias, k_bias, v_bias;
  Tensor q_norm, k_norm;
  Tensor o;
  Tensor ffn_norm;
  Tensor gate, up;
  Tensor down;
};

// The tensors outside the layers. kModelTensors has their sizes.
struct ModelTensors {
  Tensor embedding;
  Tensor final_norm;
  Tensor lm_head;  // the embedding itself where tied
};

// A dimension as a function of the config: see SizeOf.
enum class Extent {
  kOne,      // cols of a vector
  kHidden,   // the residual stream
  kHeadDim,  // one head
  kQueries,  // the query heads
  kKeys,     // the KV heads
  kFfn,      // the inner width of the FFN
  kVocab,    // the vocabulary
};

// What a rank of a tensor-parallel group has of a tensor: all of it, or part of its rows or columns.
enum class ShardAxis { kWhole, kRows, kCols };

// One weight of a layer's forward pass. The tensors of one role are packed together.
enum class LayerRole { kAttentionNorm, kQkv, kQNorm, kKNorm, kO, kFfnNorm, kGateUp, kDown };

// How a device packs a weight, whose parts are tensors.
enum class PackedForm {
  kVector,  // one part: a norm
  kTable,   // one part [rows, cols], read by row
  kMatrix,  // parts stacked by rows, [parts[0]; parts[1]; ...], and no bias or one for each part
  kGateUp,  // two parts, gate and up, for a step that ends with SwiGLU
};

struct TensorRow {
  const char* name;             // in the module digest
  const char* checkpoint_name;  // in the safetensors; of a layer: after "model.layers.N."
  Extent rows, cols;
  ShardAxis axis = ShardAxis::kWhole;
};

struct ModelTensorRow : TensorRow {
  Tensor ModelTensors::*tensor;
};

struct LayerTensorRow : TensorRow {
  Tensor LayerWeights::*tensor;
  LayerRole role;
  PackedForm form;
  bool ModelConfig::*when = nullptr;  // the flag of models that have the tensor; null: all models

  bool is_norm() const { return form == PackedForm::kVector; }
  bool is_bias() const { return !is_norm() && cols == Extent::kOne; }
  bool is_matrix() const { return !is_norm() && !is_bias(); }
};

// In the order of the digest.
inline constexpr auto kModelTensors = [] {
  using enum Extent;
  using enum ShardAxis;
  using M = ModelTensors;
  return std::to_array<ModelTensorRow>({
      {{"embedding", "model.embed_tokens.weight", kVocab, kHidden}, &M::embedding},
      {{"final_norm", "model.norm.weight", kHidden, kOne}, &M::final_norm},
      {{"lm_head", "lm_head.weight", kVocab, kHidden, kRows}, &M::lm_head},
  });
}();

// In the order of the digest and of packing.
inline constexpr auto kLayerTensors = [] {
  using enum Extent;
  using enum ShardAxis;
  using enum PackedForm;
  using L = LayerWeights;
  using Role = LayerRole;
  constexpr auto kBias = &ModelConfig::qkv_bias, kQkNorm = &ModelConfig::qk_norm;
  return std::to_array<LayerTensorRow>({
      {{"attention_norm", "input_layernorm.weight", kHidden, kOne}, &L::attention_norm, Role::kAttentionNorm, kVector},
      {{"q", "self_attn.q_proj.weight", kQueries, kHidden, kRows}, &L::q, Role::kQkv, kMatrix},
      {{"k", "self_attn.k_proj.weight", kKeys, kHidden, kRows}, &L::k, Role::kQkv, kMatrix},
      {{"v", "self_attn.v_proj.weight", kKeys, kHidden, kRows}, &L::v, Role::kQkv, kMatrix},
      {{"q_bias", "self_attn.q_proj.bias", kQueries, kOne, kRows}, &L::q_bias, Role::kQkv, kMatrix, kBias},
      {{"k_bias", "self_attn.k_proj.bias", kKeys, kOne, kRows}, &L::k_bias, Role::kQkv, kMatrix, kBias},
      {{"v_bias", "self_attn.v_proj.bias", kKeys, kOne, kRows}, &L::v_bias, Role::kQkv, kMatrix, kBias},
      {{"q_norm", "self_attn.q_norm.weight", kHeadDim, kOne}, &L::q_norm, Role::kQNorm, kVector, kQkNorm},
      {{"k_norm", "self_attn.k_norm.weight", kHeadDim, kOne}, &L::k_norm, Role::kKNorm, kVector, kQkNorm},
      {{"o", "self_attn.o_proj.weight", kHidden, kQueries, kCols}, &L::o, Role::kO, kMatrix},
      {{"ffn_norm", "post_attention_layernorm.weight", kHidden, kOne}, &L::ffn_norm, Role::kFfnNorm, kVector},
      {{"gate", "mlp.gate_proj.weight", kFfn, kHidden, kRows}, &L::gate, Role::kGateUp, kGateUp},
      {{"up", "mlp.up_proj.weight", kFfn, kHidden, kRows}, &L::up, Role::kGateUp, kGateUp},
      {{"down", "mlp.down_proj.weight", kHidden, kFfn, kCols}, &L::down, Role::kDown, kMatrix},
  });
}();

inline constexpr size_t kLayerRoles =
    1 + static_cast<size_t>(std::ranges::max(kLayerTensors, {}, &LayerTensorRow::role).role);

int64_t SizeOf(Extent extent, const ModelConfig& config);
int64_t ElementsOf(const TensorRow& row, const ModelConfig& config);
bool Has(const ModelConfig& config, const LayerTensorRow& row);
std::string LayerTensorName(const LayerTensorRow& row, int64_t layer);  // in the safetensors

}  // namespace baton
