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

// A view of a row-major matrix [rows, cols], little endian. A vector has cols = 1. The view is
// valid as long as the Weights object that it belongs to.
struct Tensor {
  const std::byte* data = nullptr;  // null: this model has no such tensor
  DType dtype = DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from one row to the next; 0 means `cols`

  int64_t row_stride() const { return stride == 0 ? cols : stride; }
};

// The tensors of one layer. A projection is [out, in], so y = W x. kLayerTensors lists the sizes.
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

// The tensors outside the layers. kModelTensors lists the sizes.
struct ModelTensors {
  Tensor embedding;
  Tensor final_norm;
  Tensor lm_head;  // equal to `embedding` in a model with tied embeddings
};

// A dimension of a tensor. SizeOf computes its size from the config.
enum class Extent {
  kOne,      // 1: the columns of a vector
  kHidden,   // the width of the residual stream
  kHeadDim,  // the width of one head
  kQueries,  // the width of all query heads
  kKeys,     // the width of all KV heads
  kFfn,      // the inner width of the FFN
  kVocab,    // the size of the vocabulary
};

// The part of a tensor that one rank of a tensor-parallel group holds: the whole tensor, a range of
// its rows, or a range of its columns.
enum class ShardAxis { kWhole, kRows, kCols };

// A weight that the forward pass of a layer uses. Tensors of the same role are packed together.
enum class LayerRole { kAttentionNorm, kQkv, kQNorm, kKNorm, kO, kFfnNorm, kGateUp, kDown };

// The form in which a device packs one or more tensors ("parts") as a weight.
enum class PackedForm {
  kVector,  // one part, the vector of a norm
  kTable,   // one part [rows, cols], read by row
  kMatrix,  // parts stacked by rows, [parts[0]; parts[1]; ...], with a bias for each or none
  kGateUp,  // two parts, gate and up, for a linear step that ends with SwiGLU
};

struct TensorRow {
  const char* name;  // in the module digest
  // The name in the safetensors file. For a tensor of layer N it lacks the prefix
  // "model.layers.N.".
  const char* checkpoint_name;
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
  // The flag that is true for models with this tensor. Null if all models have the tensor.
  bool ModelConfig::*when = nullptr;

  constexpr bool is_norm() const { return form == PackedForm::kVector; }
  constexpr bool is_bias() const { return !is_norm() && cols == Extent::kOne; }
  constexpr bool is_matrix() const { return !is_norm() && !is_bias(); }
};

// The tensors outside the layers, in the order of the module digest.
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

// The tensors of a layer, in the order of the module digest and of packing.
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

// Returns the size of a dimension.
int64_t SizeOf(Extent extent, const ModelConfig& config);
// Returns the number of elements of the tensor.
int64_t ElementsOf(const TensorRow& row, const ModelConfig& config);
// Returns true if models with this config have the tensor.
bool Has(const ModelConfig& config, const LayerTensorRow& row);
// Returns the full name of the tensor in the safetensors file.
std::string LayerTensorName(const LayerTensorRow& row, int64_t layer);

}  // namespace baton
