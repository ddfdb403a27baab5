#include "model/forward.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace baton {
namespace {

using Form = WeightSource::Form;
using Then = LinearStep::Then;

absl::StatusOr<PackedLayer> PackLayer(const LayerWeights& layer, const ModelConfig& config, Ops& ops) {
  std::vector<Tensor> qkv_bias;
  if (config.qkv_bias) qkv_bias = {layer.q_bias, layer.k_bias, layer.v_bias};
  PackedLayer packed;
  ASSIGN_OR_RETURN(packed.attention_norm, ops.Pack({Form::kVector, {layer.attention_norm}, {}}));
  ASSIGN_OR_RETURN(packed.qkv, ops.Pack({Form::kMatrix, {layer.q, layer.k, layer.v}, std::move(qkv_bias)}));
  if (config.qk_norm) {
    QkNorm norm;
    ASSIGN_OR_RETURN(norm.q, ops.Pack({Form::kVector, {layer.q_norm}, {}}));
    ASSIGN_OR_RETURN(norm.k, ops.Pack({Form::kVector, {layer.k_norm}, {}}));
    packed.qk_norm = norm;
  }
  ASSIGN_OR_RETURN(packed.o, ops.Pack({Form::kMatrix, {layer.o}, {}}));
  ASSIGN_OR_RETURN(packed.ffn_norm, ops.Pack({Form::kVector, {layer.ffn_norm}, {}}));
  ASSIGN_OR_RETURN(packed.gate_up, ops.Pack({Form::kGateUp, {layer.gate, layer.up}, {}}));
  ASSIGN_OR_RETURN(packed.down, ops.Pack({Form::kMatrix, {layer.down}, {}}));
  return packed;
}

bool WantsLogits(const Batch& batch) {
  for (const SequenceSlice& slice : batch.slices) {
    if (slice.wants_logits) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<PackedModel> PackModel(const Weights& weights, bool with_lm_head, Ops& ops) {
  PackedModel model;
  ASSIGN_OR_RETURN(model.embedding, ops.Pack({Form::kTable, {weights.embedding}, {}}));
  for (const LayerWeights& layer : weights.layers) {
    ASSIGN_OR_RETURN(PackedLayer packed, PackLayer(layer, weights.config, ops));
    model.layers.push_back(packed);
  }
  ASSIGN_OR_RETURN(model.final_norm, ops.Pack({Form::kVector, {weights.final_norm}, {}}));
  if (with_lm_head) {
    ASSIGN_OR_RETURN(model.lm_head, ops.Pack({Form::kMatrix, {weights.lm_head}, {}}));
  }
  return model;
}

absl::StatusOr<LogitsView> Forward(const PackedModel& model, const Batch& batch, Ops& ops,
                                   absl::FunctionRef<bool(int64_t layer)> layer_done) {
  const bool wants_logits = WantsLogits(batch);
  BATON_CHECK(model.lm_head.has_value() || !wants_logits, "logits are asked of a model without LM head");
  if (batch.slices.empty()) return LogitsView{};

  RETURN_IF_ERROR(ops.Begin(batch));
  ops.Embed(model.embedding);
  const int64_t last = static_cast<int64_t>(model.layers.size()) - 1;
  for (int64_t l = 0; l <= last; ++l) {
    const PackedLayer& layer = model.layers[l];
    ops.Linear({Activation::kHidden, layer.attention_norm, layer.qkv, Activation::kQkv, Then::kStore});
    ops.StoreKv(l, layer.qk_norm);
    if (!layer_done(l)) return absl::AbortedError(absl::StrCat("broken off after layer ", l));
    if (l == last) {
      if (!wants_logits) return LogitsView{};
      ops.KeepLogitRows();
    }
    ops.Attend(l);
    ops.Linear({Activation::kAttended, std::nullopt, layer.o, Activation::kHidden, Then::kAdd});
    ops.Linear({Activation::kHidden, layer.ffn_norm, layer.gate_up, Activation::kGated, Then::kSwiGlu});
    ops.Linear({Activation::kGated, std::nullopt, layer.down, Activation::kHidden, Then::kAdd});
  }
  return ops.Logits(model.final_norm, *model.lm_head);
}

}  // namespace baton
