#include "model/forward.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace baton {
namespace {

using Form = WeightSource::Form;
using Role = LayerRole;
using Then = LinearStep::Then;

WeightSource SourceOf(const LayerWeights& layer, LayerRole role) {
  WeightSource source;
  for (const LayerTensorRow& row : kLayerTensors) {
    const Tensor& tensor = layer.*row.tensor;
    if (row.role != role || tensor.data == nullptr) continue;
    source.form = row.form;
    (row.is_bias() ? source.biases : source.parts).push_back(tensor);
  }
  return source;
}

absl::StatusOr<PackedLayer> PackLayer(const LayerWeights& layer, Ops& ops) {
  PackedLayer packed;
  for (const LayerTensorRow& row : kLayerTensors) {
    if (packed.Find(row.role).has_value()) continue;  // an earlier row packed this role
    const WeightSource source = SourceOf(layer, row.role);
    if (source.parts.empty()) continue;
    ASSIGN_OR_RETURN(const WeightId weight, ops.Pack(source));
    packed.Set(row.role, weight);
  }
  return packed;
}

std::optional<QkNorm> QkNormOf(const PackedLayer& layer) {
  const std::optional<WeightId> q = layer.Find(Role::kQNorm), k = layer.Find(Role::kKNorm);
  return q && k ? std::optional(QkNorm{*q, *k}) : std::nullopt;
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
    ASSIGN_OR_RETURN(PackedLayer packed, PackLayer(layer, ops));
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
  BATON_CHECK(model.lm_head.has_value() || !wants_logits, "a batch wants logits of a model without LM head");
  if (batch.slices.empty()) return LogitsView{};

  RETURN_IF_ERROR(ops.Begin(batch));
  ops.Embed(model.embedding);
  const int64_t last = static_cast<int64_t>(model.layers.size()) - 1;
  for (int64_t l = 0; l <= last; ++l) {
    const PackedLayer& layer = model.layers[l];
    ops.Linear({Activation::kHidden, layer[Role::kAttentionNorm], layer[Role::kQkv], Activation::kQkv, Then::kStore});
    ops.StoreKv(l, QkNormOf(layer));
    if (!layer_done(l)) return absl::AbortedError(absl::StrCat("the caller stopped the pass after layer ", l));
    if (l == last) {
      if (!wants_logits) return LogitsView{};
      ops.KeepLogitRows();
    }
    ops.Attend(l);
    ops.Linear({Activation::kAttended, std::nullopt, layer[Role::kO], Activation::kHidden, Then::kAdd});
    ops.Linear({Activation::kHidden, layer[Role::kFfnNorm], layer[Role::kGateUp], Activation::kGated, Then::kSwiGlu});
    ops.Linear({Activation::kGated, std::nullopt, layer[Role::kDown], Activation::kHidden, Then::kAdd});
  }
  return ops.Logits(model.final_norm, *model.lm_head);
}

}  // namespace baton
