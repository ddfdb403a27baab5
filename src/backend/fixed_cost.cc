#include "backend/fixed_cost.h"

#include <cstdint>

#include "model/layer_tensors.h"

namespace baton {

double FixedTokens(const ModelConfig& model, const StepRates& rates) {
  int64_t elements = 0;
  for (const LayerTensorRow& row : kLayerTensors) {
    if (row.is_matrix() && Has(model, row)) elements += model.layers * ElementsOf(row, model);
  }
  const double bytes = 2.0 * static_cast<double>(elements);  // bf16
  const double flops = 2.0 * static_cast<double>(elements);  // a multiply-add counts as 2
  const double fixed_seconds = bytes / rates.memory_bytes + absl::ToDoubleSeconds(rates.overhead);
  return fixed_seconds * rates.flops / flops;
}

}  // namespace baton
