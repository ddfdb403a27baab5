// Tests of the rows of the layer tensor table, and of the tables derived from them.
#include "model/layer_tensors.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "model/prefill_module.h"
#include "model/random_weights.h"
#include "model/shard.h"
#include "source_path.h"

namespace baton {
namespace {

// A shape with all optional tensors, so that every row counts. No family has all of them.
ModelConfig ShapeWithAll() {
  ModelConfig shape;
  shape.dtype = DType::kF32;
  shape.layers = 2;
  shape.hidden = 10;
  shape.ffn = 14;
  shape.heads = 10;
  shape.kv_heads = 5;
  shape.head_dim = 4;
  shape.vocab = 23;
  shape.context = 64;
  for (const LayerTensorRow& row : kLayerTensors) {
    if (row.when != nullptr) shape.*row.when = true;
  }
  return shape;
}

bool Names(const Weights& weights, const std::string& name) {
  return std::ranges::count(TensorsOf(weights), name, &NamedTensor::name) == 1;
}

template <class Rows>
void CheckRowsDiffer(const Rows& rows) {
  std::set<std::string> names, checkpoint_names;
  for (const auto& row : rows) {
    INFO(row.name);
    CHECK(names.insert(row.name).second);
    CHECK(checkpoint_names.insert(row.checkpoint_name).second);
    CHECK(std::ranges::count_if(rows, [&](const auto& other) { return other.tensor == row.tensor; }) == 1);
  }
}

}  // namespace

TEST_CASE("The layer tensor table has one row and one name for each tensor") {
  CheckRowsDiffer(kModelTensors);
  CheckRowsDiffer(kLayerTensors);
}

TEST_CASE("The layer tensor table gives the dimensions of a rank's tensors") {
  const RandomWeights whole(ShapeWithAll(), 1);
  for (const int ranks : {1, 2, 5}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto part = ShardWeights(whole, {rank, ranks});
      for (const LayerTensorRow& row : kLayerTensors) {
        INFO("rank " << rank << " of " << ranks << ": " << row.name);
        const Tensor& tensor = part->layers[1].*row.tensor;
        CHECK(tensor.data != nullptr);
        CHECK(tensor.rows == SizeOf(row.rows, part->config));
        CHECK(tensor.cols == SizeOf(row.cols, part->config));
      }
    }
  }
}

TEST_CASE("TensorsOf lists each tensor of a model once by name") {
  const RandomWeights all(ShapeWithAll(), 1);
  std::set<std::string> names;
  for (const NamedTensor& tensor : TensorsOf(all)) {
    INFO(tensor.name);
    CHECK(names.insert(tensor.name).second);
    CHECK(tensor.tensor->data != nullptr);
  }
  CHECK(names.size() == std::size(kModelTensors) + 2 * std::size(kLayerTensors));
  CHECK(names.contains("1.q_bias"));

  ModelConfig shape = ShapeWithAll();
  shape.qkv_bias = false;
  const RandomWeights without_bias(shape, 1);
  CHECK(TensorsOf(without_bias).size() == names.size() - 2 * 3);
  CHECK_FALSE(Names(without_bias, "1.q_bias"));
}

TEST_CASE("TensorsOf names a tied LM head only for a rank that has a part of it") {
  ModelConfig tied = ShapeWithAll();
  tied.tied_embeddings = true;
  const RandomWeights whole(tied, 1);
  CHECK(Names(whole, "embedding"));
  CHECK_FALSE(Names(whole, "lm_head"));
  CHECK_FALSE(Names(*ShardWeights(whole, {0, 1}), "lm_head"));
  CHECK(Names(*ShardWeights(whole, {0, 2}), "lm_head"));
  CHECK(Names(*ShardWeights(whole, {1, 2}), "lm_head"));
}

TEST_CASE("CheckSharesKv refuses a decoder that lacks a layer tensor, by the tensor's name") {
  const auto tokenizer = Tokenizer::Load(SourcePath("test/golden/tiny_llama3_f32")).value();
  const ModelConfig module = ShapeWithAll();
  ModelConfig decoder = module;
  CHECK(CheckSharesKv({module, *tokenizer}, {decoder, *tokenizer}).ok());
  decoder.qk_norm = false;
  CHECK(CheckSharesKv({module, *tokenizer}, {decoder, *tokenizer}).message() ==
        "layer tensor q_norm: the prefill module has one, the decoder none");
}

}  // namespace baton
