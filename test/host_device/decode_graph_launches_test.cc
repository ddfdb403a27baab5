// Tests of which decode steps are launched as graphs.
#include "backend/cuda/cuda_test_device.h"
#include "host_device/stream.h"

namespace baton {
namespace {

TEST_CASE("CudaBackend replays one graph for decode steps of similar size") {
  const RandomWeights weights(LlamaShape(DType::kBF16), 1);
  for (const bool same_bits : {false, true}) {
    INFO("same bits " << same_bits);
    Device device(weights, same_bits);
    std::vector<TestSequence> sequences;
    for (uint32_t i = 0; i < 24; ++i) sequences.push_back(device.Place(RandomTokens(20, weights.config.vocab, i)));
    const int64_t before = host_device::GraphLaunches();
    int64_t steps = 0;
    for (int64_t position = 0; position < 16; ++position) {
      // With same bits, a graph serves only one number of streams.
      const int64_t streams = same_bits ? 20 : 17 + position % 8;
      Batch batch;
      for (int64_t i = 0; i < 24; ++i) {
        const SequenceSlice slice = sequences[static_cast<size_t>(i)].Slice(position, position + 1, true);
        if (i < streams) batch.slices.push_back(slice);
      }
      device.Run(batch);
      ++steps;
    }
    CHECK(host_device::GraphLaunches() - before == steps - 1);
  }
}

}  // namespace
}  // namespace baton
