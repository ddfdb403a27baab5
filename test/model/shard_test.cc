// Tests of each rank's part of a model in a tensor-parallel group.
#include "model/shard.h"

#include <cstring>
#include <string>
#include <vector>

#include "catch.h"
#include "model/random_weights.h"

namespace baton {
namespace {

ModelConfig ShapeWithHeads(int64_t heads, int64_t kv_heads) {
  ModelConfig shape;
  shape.architecture = Architecture::kQwen2;
  shape.dtype = DType::kF32;
  shape.layers = 1;
  shape.hidden = 10;
  shape.ffn = 14;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = 4;
  shape.vocab = 23;
  shape.context = 64;
  shape.qkv_bias = true;
  return shape;
}

float At(const Tensor& tensor, int64_t row, int64_t column) {
  float value;
  std::memcpy(&value, tensor.data + (row * tensor.row_stride() + column) * sizeof(value), sizeof(value));
  return value;
}

// Checks that the parts make up the whole, stacked by rows or side by side.
void CheckRows(const Tensor& whole, const std::vector<Tensor>& parts) {
  int64_t row = 0;
  for (const Tensor& part : parts) {
    REQUIRE(part.cols == whole.cols);
    REQUIRE(row + part.rows <= whole.rows);
    for (int64_t r = 0; r < part.rows; ++r, ++row) {
      for (int64_t c = 0; c < part.cols; ++c) CHECK(At(part, r, c) == At(whole, row, c));
    }
  }
  CHECK(row == whole.rows);
}

void CheckColumns(const Tensor& whole, const std::vector<Tensor>& parts) {
  int64_t column = 0;
  for (const Tensor& part : parts) {
    REQUIRE(part.rows == whole.rows);
    REQUIRE(column + part.cols <= whole.cols);
    for (int64_t c = 0; c < part.cols; ++c, ++column) {
      for (int64_t r = 0; r < part.rows; ++r) CHECK(At(part, r, c) == At(whole, r, column));
    }
  }
  CHECK(column == whole.cols);
}

template <class Member>
std::vector<Tensor> Parts(const std::vector<std::unique_ptr<Weights>>& ranks, Member member) {
  std::vector<Tensor> parts;
  for (const auto& rank : ranks) parts.push_back(rank->layers[0].*member);
  return parts;
}

}  // namespace

TEST_CASE("Shards make up the model, also when KV heads do not divide evenly") {
  for (const int ranks : {1, 2, 3, 5}) {
    INFO(ranks << " ranks");
    const RandomWeights whole(ShapeWithHeads(10, 5), 3);
    REQUIRE(CheckShard(whole.config, ranks).ok());
    std::vector<std::unique_ptr<Weights>> parts;
    int64_t kv_heads = 0, heads = 0, ffn = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      parts.push_back(ShardWeights(whole, {rank, ranks}));
      const ModelConfig& config = parts.back()->config;
      CHECK(config.heads == 2 * config.kv_heads);
      CHECK(config.ffn % 2 == 0);
      CHECK(config.vocab == whole.config.vocab);
      CHECK(parts.back()->layers[0].q.rows == config.heads * config.head_dim);
      kv_heads += config.kv_heads;
      heads += config.heads;
      ffn += config.ffn;
    }
    CHECK(kv_heads == 5);
    CHECK(heads == 10);
    CHECK(ffn == 14);
    const LayerWeights& layer = whole.layers[0];
    for (const auto member : {&LayerWeights::q, &LayerWeights::k, &LayerWeights::v, &LayerWeights::q_bias,
                              &LayerWeights::k_bias, &LayerWeights::v_bias, &LayerWeights::gate, &LayerWeights::up}) {
      CheckRows(layer.*member, Parts(parts, member));
    }
    CheckColumns(layer.o, Parts(parts, &LayerWeights::o));
    CheckColumns(layer.down, Parts(parts, &LayerWeights::down));
    std::vector<Tensor> heads_parts;
    for (const auto& part : parts) heads_parts.push_back(part->lm_head);
    CheckRows(whole.lm_head, heads_parts);
  }
}

TEST_CASE("Shards of two ranks differ by at most one unit") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    int64_t least = 1000, most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t size = RangeOf({rank, ranks}, 46, 2).size();
      least = std::min(least, size);
      most = std::max(most, size);
    }
    INFO(ranks << " ranks: " << least << " to " << most);
    CHECK(most - least <= 2);
  }
}

TEST_CASE("CheckShard refuses too many ranks with both numbers") {
  const auto refusal = [](const ModelConfig& config, int ranks) {
    return std::string(CheckShard(config, ranks).message());
  };
  CHECK(refusal(ShapeWithHeads(6, 3), 4) == "tensor parallelism: expected 1 to 3 ranks (each needs a KV head), got 4");
  CHECK(refusal(ShapeWithHeads(6, 3), 0) == "tensor parallelism: expected 1 to 3 ranks (each needs a KV head), got 0");
  ModelConfig narrow = ShapeWithHeads(6, 3);
  narrow.ffn = 128;
  CHECK(refusal(narrow, 3) == "tensor parallelism: expected 1 to 2 ranks (each needs a tile of the FFN), got 3");
}

}  // namespace baton
