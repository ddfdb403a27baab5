#include "model/shard.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {
namespace {

// Both are views; a model that has no such tensor has no part of it.
Tensor Rows(const Tensor& tensor, const ShardRange& range) {
  if (tensor.data == nullptr) return tensor;
  Tensor part = tensor;
  part.data += range.begin * tensor.row_stride() * BytesPerElement(tensor.dtype);
  part.rows = range.size();
  return part;
}

Tensor Columns(const Tensor& tensor, const ShardRange& range) {
  Tensor part = tensor;
  part.data += range.begin * BytesPerElement(tensor.dtype);
  part.cols = range.size();
  part.stride = tensor.row_stride();
  return part;
}

// Kernels multiply whole tiles: parts are multiples of them as far as the whole is.
int64_t TileOf(int64_t n) { return std::gcd(n, int64_t{64}); }

ShardRange Times(const ShardRange& range, int64_t factor) { return {range.begin * factor, range.end * factor}; }

}  // namespace

ShardRange RangeOf(const Shard& shard, int64_t n, int64_t unit) {
  BATON_CHECK(n % unit == 0, "whole units are shared out");
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
        absl::StrCat("tensor parallelism: expected 1 to ", most, " ranks, ", what, " for each, got ", ranks));
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
  const ShardRange kv_heads = RangeOf(shard, config.kv_heads);
  const ShardRange kv = Times(kv_heads, config.head_dim);
  const ShardRange q = Times(kv, config.heads / config.kv_heads);
  const ShardRange ffn = RangeOf(shard, config.ffn, TileOf(config.ffn));

  auto part = std::make_unique<Weights>();
  part->config = config;
  part->config.kv_heads = kv_heads.size();
  part->config.heads = kv_heads.size() * (config.heads / config.kv_heads);
  part->config.ffn = ffn.size();
  part->embedding = whole.embedding;
  part->final_norm = whole.final_norm;
  part->lm_head = Rows(whole.lm_head, VocabRange(shard, config));
  part->digest = whole.digest;
  for (const LayerWeights& layer : whole.layers) {
    LayerWeights mine = layer;
    mine.q = Rows(layer.q, q);
    mine.k = Rows(layer.k, kv);
    mine.v = Rows(layer.v, kv);
    mine.q_bias = Rows(layer.q_bias, q);
    mine.k_bias = Rows(layer.k_bias, kv);
    mine.v_bias = Rows(layer.v_bias, kv);
    mine.o = Columns(layer.o, q);
    mine.gate = Rows(layer.gate, ffn);
    mine.up = Rows(layer.up, ffn);
    mine.down = Columns(layer.down, ffn);
    part->layers.push_back(mine);
  }
  return part;
}

}  // namespace baton
