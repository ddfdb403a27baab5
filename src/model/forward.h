// The forward pass of the transformer (Llama 3, Qwen2.5, Qwen3). All devices share this code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/layer_tensors.h"
#include "model/logits.h"
#include "model/ops.h"
#include "model/weights.h"

namespace baton {

// The packed weights of one layer, by role.
class PackedLayer {
 public:
  // Returns nullopt if the model family has no weight of this role.
  const std::optional<WeightId>& Find(LayerRole role) const { return weights_[static_cast<size_t>(role)]; }
  // REQUIRES: the model family has a weight of this role.
  WeightId operator[](LayerRole role) const { return Find(role).value(); }
  void Set(LayerRole role, WeightId weight) { weights_[static_cast<size_t>(role)] = weight; }

 private:
  std::array<std::optional<WeightId>, kLayerRoles> weights_;
};

// A model in the device's own form. It holds no reference to the Weights that it was packed from.
struct PackedModel {
  WeightId embedding;
  std::vector<PackedLayer> layers;
  WeightId final_norm;
  std::optional<WeightId> lm_head;  // a prefill worker has none
};

// Packs all weights with ops.Pack. Packs the LM head only if `with_lm_head`.
absl::StatusOr<PackedModel> PackModel(const Weights& weights, bool with_lm_head, Ops& ops);

// Writes the K/V of `batch` and computes the logits that its slices want. Returns an empty view if
// no slice wants logits. In the last layer, only the rows that want logits are computed beyond
// their K/V.
//
// Calls `layer_done(l)` once K/V of layer l is stored for the whole batch. If it returns false, the
// pass stops and returns ABORTED. REQUIRES: the model has an LM head if a slice wants logits.
absl::StatusOr<LogitsView> Forward(const PackedModel& model, const Batch& batch, Ops& ops,
                                   absl::FunctionRef<bool(int64_t layer)> layer_done);

}  // namespace baton
