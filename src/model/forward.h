// The transformer (Llama 3, Qwen2.5, Qwen3), written once for every device.
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

// One layer's weights by role.
class PackedLayer {
 public:
  // Null: the family has no such weight.
  const std::optional<WeightId>& Find(LayerRole role) const { return weights_[static_cast<size_t>(role)]; }
  // REQUIRES: the family has such a weight.
  WeightId operator[](LayerRole role) const { return Find(role).value(); }
  void Set(LayerRole role, WeightId weight) { weights_[static_cast<size_t>(role)] = weight; }

 private:
  std::array<std::optional<WeightId>, kLayerRoles> weights_;
};

// A model in a device's own form; holds nothing of the Weights it came from.
struct PackedModel {
  WeightId embedding;
  std::vector<PackedLayer> layers;
  WeightId final_norm;
  std::optional<WeightId> lm_head;  // a prefill worker has none
};

absl::StatusOr<PackedModel> PackModel(const Weights& weights, bool with_lm_head, Ops& ops);

// Writes the batch's K/V and computes the logits that its slices want (none: an empty view). In the last layer only
// these rows go on after their K/V is stored. `layer_done(l)` is called once layer l of the whole batch is stored;
// where it returns false, the pass ends there: ABORTED.
absl::StatusOr<LogitsView> Forward(const PackedModel& model, const Batch& batch, Ops& ops,
                                   absl::FunctionRef<bool(int64_t layer)> layer_done);

}  // namespace baton
