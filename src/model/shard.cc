#include "model/shard.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {
namespace {

// Returns the unit by which a dimension of size n is split: gcd(n, 64).
// Kernels multiply whole tiles, so a part should have whole tiles if n has.
int64_t TileOf(int64_t n) { return std::gcd(n, int64_t{64}); }

ShardRange Times(const ShardRange& range, int64_t factor) { return {range.begin * factor, range.end * factor}; }

// Returns the part of a dimension that a rank has. REQUIRES: the dimension is split over the ranks.
ShardRange PartOf(Extent extent, const ModelConfig& config, const Shard& shard) {
  const ShardRange kv_heads = RangeOf(shard, config.kv_heads);
  switch (extent) {
    case Extent::kQueries:
      return Times(kv_heads, config.heads / config.kv_heads * config.head_dim);
    case Extent::kKeys:
      return Times(kv_heads, config.head_dim);
    case Extent::kFfn:
      return RangeOf(shard, config.ffn, TileOf(config.ffn));
    case Extent::kVocab:
      return VocabRange(shard, config);
    case Extent::kOne:
    case Extent::kHidden:
    case Extent::kHeadDim:
      break;
  }
  BATON_CHECK(false, "every rank has the whole of this dimension");
}

// Returns the rank's part of a tensor, as a view of `whole`. The part is null if `whole` is null.
Tensor PartOf(const Tensor& whole, const TensorRow& row, const ModelConfig& config, const Shard& shard) {
  Tensor part = whole;
  if (whole.data == nullptr || row.axis == ShardAxis::kWhole) return part;
  const bool by_rows = row.axis == ShardAxis::kRows;
  const ShardRange range = PartOf(by_rows ? row.rows : row.cols, config, shard);
  (by_rows ? part.rows : part.cols) = range.size();
  part.stride = by_rows ? whole.stride : whole.row_stride();
  part.data += range.begin * (by_rows ? whole.row_stride() : 1) * BytesPerElement(whole.dtype);
  return part;
}

}  // namespace

ShardRange RangeOf(const Shard& shard, int64_t n, int64_t unit) {
  BATON_CHECK(n % unit == 0, "n is not a multiple of the unit");
  return {n / unit * shard.rank / shard.ranks * unit, n / unit * (shard.rank + 1) / shard.ranks * unit};
}

absl::Status CheckShard(const ModelConfig& config, int ranks) {
  const std::pair<const char*, int64_t> shared_out[] = {
      {"a KV head", config.kv_heads},
      {"a tile of the FFN", config.ffn / TileOf(config.ffn)},
      {"a tile of the vocabulary", config.vocab / TileOf(config.vocab)}};
  for (const auto& [what, most] : shared_out) {
    if (ranks >= 1 && ranks <= most) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor parallelism: expected 1 to ", most, " ranks (each needs ", what, "), got ", ranks));
  }
  return absl::OkStatus();
}

ShardRange VocabRange(const Shard& shard, const ModelConfig& config) {
  return RangeOf(shard, config.vocab, TileOf(config.vocab));
}

std::vector<int64_t> VocabColumns(int ranks, const ModelConfig& config) {
  std::vector<int64_t> columns;
  for (int rank = 0; rank < ranks; ++rank) columns.push_back(VocabRange({rank, ranks}, config).size());
  return columns;
}

std::unique_ptr<Weights> ShardWeights(const Weights& whole, const Shard& shard) {
  const ModelConfig& config = whole.config;
  auto part = std::make_unique<Weights>();
  part->config = config;
  part->config.kv_heads = RangeOf(shard, config.kv_heads).size();
  part->config.heads = part->config.kv_heads * (config.heads / config.kv_heads);
  part->config.ffn = PartOf(Extent::kFfn, config, shard).size();
  part->digest = whole.digest;
  for (const ModelTensorRow& row : kModelTensors) {
    (*part).*row.tensor = PartOf(whole.*row.tensor, row, config, shard);
  }
  for (const LayerWeights& layer : whole.layers) {
    LayerWeights& part_layer = part->layers.emplace_back();
    for (const LayerTensorRow& row : kLayerTensors) {
      part_layer.*row.tensor = PartOf(layer.*row.tensor, row, config, shard);
    }
  }
  return part;
}

}  // namespace baton
