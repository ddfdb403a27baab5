#include "model/layer_tensors.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {

static_assert(std::size(kLayerTensors) == sizeof(LayerWeights) / sizeof(Tensor), "one row for each member");
// Ranks sum the products of a projection that is split by columns, so each rank would add the bias.
static_assert(std::ranges::none_of(kLayerTensors,
                                   [](const LayerTensorRow& bias) {
                                     return bias.is_bias() &&
                                            std::ranges::any_of(kLayerTensors, [&](const LayerTensorRow& row) {
                                              return row.role == bias.role && row.axis == ShardAxis::kCols;
                                            });
                                   }),
              "tensor parallelism has no bias of a projection that is split by columns");
static_assert(std::size(kModelTensors) == sizeof(ModelTensors) / sizeof(Tensor), "one row for each member");

int64_t SizeOf(Extent extent, const ModelConfig& config) {
  switch (extent) {
    case Extent::kOne:
      return 1;
    case Extent::kHidden:
      return config.hidden;
    case Extent::kHeadDim:
      return config.head_dim;
    case Extent::kQueries:
      return config.heads * config.head_dim;
    case Extent::kKeys:
      return config.kv_heads * config.head_dim;
    case Extent::kFfn:
      return config.ffn;
    case Extent::kVocab:
      return config.vocab;
  }
  BATON_CHECK(false, "unknown extent");
}

int64_t ElementsOf(const TensorRow& row, const ModelConfig& config) {
  return SizeOf(row.rows, config) * SizeOf(row.cols, config);
}

bool Has(const ModelConfig& config, const LayerTensorRow& row) { return row.when == nullptr || config.*row.when; }

std::string LayerTensorName(const LayerTensorRow& row, int64_t layer) {
  return absl::StrCat("model.layers.", layer, ".", row.checkpoint_name);
}

}  // namespace baton
