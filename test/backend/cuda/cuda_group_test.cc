// Ranks on CUDA devices give the result of one device and keep its guarantees. On a machine with
// one device, all ranks share that device, and access to another device's memory is not tested.
#include "backend/cuda/cuda_group.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cuda/cuda_test_device.h"
#include "backend/cuda/device_communicator.h"
#include "backend/cuda/rank_sums.h"

namespace baton {
namespace {

// Shapes whose KV heads divide evenly among 2 and 3 ranks, and shapes whose KV heads do not.
std::vector<ModelConfig> GroupShapes() {
  std::vector<ModelConfig> shapes = {LlamaShape(DType::kBF16), Wide(Qwen2Shape(DType::kBF16), 64),
                                     Wide(Qwen3Shape(DType::kBF16), 128)};
  for (ModelConfig& shape : shapes) {
    shape.kv_heads = 4;
    shape.heads = 8;
    // Large enough that ranks sum many rows in parts.
    shape.hidden = 256;
  }
  return shapes;
}

// Runs prompts of several lengths in one pass, then decode steps of all of them. Ranks sum the
// longest prompt in parts. Returns all logits.
std::vector<float> Steps(Device& device, int64_t vocab) {
  std::vector<TestSequence> sequences;
  Batch batch;
  for (const int64_t length : {400, 70, 1, 33}) {
    sequences.push_back(device.Place(RandomTokens(length + 3, vocab, static_cast<uint32_t>(length))));
    batch.slices.push_back(sequences.back().Slice(0, length, true));
  }
  std::vector<float> logits = device.Run(batch);
  for (int64_t left = 3; left > 0; --left) {
    batch.slices.clear();
    for (const TestSequence& s : sequences) {
      batch.slices.push_back(s.Slice(std::ssize(s.tokens) - left, std::ssize(s.tokens) - left + 1, true));
    }
    const std::vector<float> more = device.Run(batch);
    logits.insert(logits.end(), more.begin(), more.end());
  }
  return logits;
}

TEST_CASE("A CUDA group of two, three or four ranks gives the logits of one device", "[backends]") {
  if (!HasDevice()) return;
  for (const ModelConfig& shape : GroupShapes()) {
    const RandomWeights weights(shape, 11);
    for (const bool same_bits : {false, true}) {
      Device alone(weights, same_bits);
      const std::vector<float> expected = Steps(alone, shape.vocab);
      for (const int ranks : {2, 3, 4}) {
        INFO("head_dim " << shape.head_dim << ", same bits " << same_bits << ", " << ranks << " ranks");
        Device group(weights, same_bits, /*seed=*/1, ranks);
        CHECK(Difference(expected, Steps(group, shape.vocab)) < 2e-2);
      }
    }
  }
}

// Returns the most likely token of each row of logits, [rows, vocab].
std::vector<TokenId> Likeliest(const std::vector<float>& logits, int64_t vocab) {
  std::vector<TokenId> ids;
  for (auto row = logits.begin(); row != logits.end(); row += vocab) {
    ids.push_back(static_cast<TokenId>(std::max_element(row, row + vocab) - row));
  }
  return ids;
}

TEST_CASE("CUDA ranks give unnamed ids the logit -inf and never choose them") {
  if (!HasDevice()) return;
  const ModelConfig shape = GroupShapes()[0];
  const RandomWeights weights(shape, 11);
  for (const int ranks : {1, 2, 3}) {
    INFO(ranks << " ranks");
    Device plain(weights, /*same_bits=*/true, /*seed=*/1, ranks);
    const std::vector<float> expected = Steps(plain, shape.vocab);
    std::vector<TokenId> unnamed = Likeliest(expected, shape.vocab);
    unnamed.push_back(static_cast<TokenId>(shape.vocab - 1));
    Device masked(weights, /*same_bits=*/true, /*seed=*/1, ranks, {}, unnamed);
    std::vector<float> logits = Steps(masked, shape.vocab);
    REQUIRE(Masked(logits, shape.vocab, unnamed) == logits);
    // Another device may compute products in another order.
    for (size_t i = 0; i < logits.size(); ++i) {
      if (std::isinf(logits[i])) logits[i] = expected[i];
    }
    CHECK(Difference(expected, logits) < 2e-2);

    // Direct, captured and replayed steps, all sampled by the device.
    const TestSequence sequence = masked.Place(RandomTokens(40, shape.vocab, 400));
    masked.Prefill(sequence, 37, 37);
    for (int64_t position = 37; position < 40; ++position) {
      Batch batch{{NextOf(sequence, position)}};
      batch.slices[0].sample = &kGreedy;
      const auto view = masked->Forward(batch, [](int64_t) { return true; });
      REQUIRE(view.ok());
      REQUIRE(view->sampled.size() == 1);
      CHECK(view->sampled[0].id >= 0);
      CHECK(std::ranges::find(unnamed, view->sampled[0].id) == unnamed.end());
    }
  }
}

TEST_CASE("A CUDA group gives the same bits for any chunks and neighbours with same_bits", "[backends]") {
  if (!HasDevice()) return;
  for (const ModelConfig& shape : GroupShapes()) {
    const RandomWeights weights(shape, 7);
    for (const int ranks : {2, 3}) {
      INFO("head_dim " << shape.head_dim << ", " << ranks << " ranks");
      Device device(weights, /*same_bits=*/true, /*seed=*/1, ranks);
      const std::vector<TokenId> tokens = RandomTokens(400, shape.vocab, 4);
      const TestSequence whole = device.Place(tokens), cut = device.Place(tokens);
      const TestSequence neighbour = device.Place(RandomTokens(200, shape.vocab, 5));
      const std::vector<float> logits = device.Run({{whole.Slice(0, 400, true)}});
      device.Run({{neighbour.Slice(0, 31, false), cut.Slice(0, 17, false)}});
      device.Run({{cut.Slice(17, 350, false), neighbour.Slice(31, 90, false)}});
      device.Run({{cut.Slice(350, 399, false)}});
      CHECK(SameBits(device.Run({{cut.Slice(399, 400, true)}}), logits));
      CHECK(device.Kv(cut) == device.Kv(whole));
    }
  }
}

TEST_CASE("A CUDA group ends an aborted pass on all ranks and completes the next one") {
  if (!HasDevice()) return;
  const RandomWeights weights(GroupShapes()[0], 5);
  Device device(weights, /*same_bits=*/false, /*seed=*/1, /*ranks=*/2);
  const TestSequence sequence = device.Place(RandomTokens(50, weights.config.vocab, 1));
  const std::vector<float> expected = device.Run({{sequence.Slice(0, 50, true)}});
  for (const int64_t last : {0, 1}) {
    const auto aborted = device->Forward({{sequence.Slice(0, 50, true)}}, [&](int64_t layer) { return layer < last; });
    CHECK(absl::IsAborted(aborted.status()));
    CHECK(SameBits(expected, device.Run({{sequence.Slice(0, 50, true)}})));
  }
}

TEST_CASE("A sum over CUDA ranks follows their order for any size") {
  if (!HasDevice()) return;
  RankSums::Check();
}

TEST_CASE("A CUDA group refuses no device, too many devices and more ranks than KV heads") {
  CHECK(absl::IsInvalidArgument(MakeDeviceCommunicators({}).status()));
  CHECK(absl::IsInvalidArgument(MakeDeviceCommunicators(std::vector<int>(17, 0)).status()));
  const RandomWeights weights(LlamaShape(DType::kBF16), 5);
  const absl::Status status = MakeCudaGroup(weights, std::vector<CudaRank>(3), {}).status();
  CHECK(status.message() == "tensor parallelism: expected 1 to 2 ranks (each needs a KV head), got 3");
}

}  // namespace
}  // namespace baton
