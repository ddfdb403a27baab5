// Ranks on several devices, with and without access to each other's memory.
#include "backend/cuda/cuda_test_device.h"
#include "backend/cuda/device_communicator.h"
#include "backend/cuda/rank_sums.h"
#include "host_device/stream.h"

namespace baton {
namespace {

// Runs a prompt that the ranks sum in parts, and decode steps that each rank sums alone. Returns
// all logits.
std::vector<float> Logits(const Weights& weights, int ranks) {
  Device device(weights, /*same_bits=*/true, /*seed=*/1, ranks);
  const TestSequence sequence = device.Place(RandomTokens(403, weights.config.vocab, 3));
  std::vector<float> logits = device.Run({{sequence.Slice(0, 400, true)}});
  for (int64_t position = 400; position < 403; ++position) {
    const std::vector<float> more = device.Run({{sequence.Slice(position, position + 1, true)}});
    logits.insert(logits.end(), more.begin(), more.end());
  }
  return logits;
}

TEST_CASE("A sum over CUDA ranks keeps their order with and without peer access") {
  for (const bool reach : {true, false}) {
    INFO("devices reach each other: " << reach);
    const host_device::Devices devices(3, reach);
    RankSums::Check();
  }
}

TEST_CASE("A CUDA group gives the same bits with and without peer access") {
  ModelConfig shape = Wide(Qwen3Shape(DType::kBF16), 64);
  shape.kv_heads = 4;
  shape.heads = 8;
  shape.hidden = 256;
  const RandomWeights weights(shape, 11);
  for (const int ranks : {2, 3}) {
    const std::vector<float> together = Logits(weights, ranks);  // on one device
    for (const bool reach : {true, false}) {
      INFO(ranks << " ranks, devices reach each other: " << reach);
      const host_device::Devices devices(ranks, reach);
      CHECK(SameBits(Logits(weights, ranks), together));
    }
  }
}

TEST_CASE("DevicesApart names devices without access to each other's memory") {
  {
    const host_device::Devices devices(3, /*reach_each_other=*/true);
    CHECK(*DevicesApart(std::vector{0, 1, 2}) == "");
  }
  const host_device::Devices devices(4, /*reach_each_other=*/false);
  CHECK(*DevicesApart(std::vector{2, 2}) == "");
  CHECK(*DevicesApart(std::vector{1, 1, 3}) == "1 and 3");
  CHECK(*DevicesApart(std::vector{3, 1}) == "1 and 3");
  CHECK(*DevicesApart(std::vector{0, 1, 2}) == "0 and 1, and other pairs,");
  CHECK(absl::IsUnavailable(DevicesApart(std::vector{0, 4}).status()));
}

}  // namespace
}  // namespace baton
