#include "backend/cuda/projection_tuner.h"

#include <vector>

#include "backend/cuda/cuda_test_device.h"
#include "catch.h"
#include "host_device/stream.h"
#include "kernels/device_array.h"

namespace baton {
namespace {

TEST_CASE("CudaMatmul uses ProjectionTuner's choice for all counts up to the largest") {
  constexpr int64_t kN = 24, kK = 16;
  const std::vector<__nv_bfloat16> zeros(200 * kK);
  const cuda::DeviceArray<__nv_bfloat16> x(zeros), first(zeros), second(zeros);
  const cuda::DeviceArray<float> y(200 * kN);
  for (const bool same_bits : {false, true}) {
    INFO("same bits " << same_bits);
    const auto matmul = CudaMatmul::Create(same_bits);
    REQUIRE(matmul.ok());
    MatrixProduct product{.x = x.data(), .n = kN, .k = kK, .fp32_output = true};
    const std::vector<Projection> projections = {
        {.product = product, .weights = {first.data(), second.data()}, .most_rows = 100}};
    REQUIRE(ProjectionTuner(**matmul, cudaStreamPerThread).Tune(projections).ok());

    const int64_t tuned = host_device::Suggestions();
    CHECK(tuned > 0);
    product.y = y.data();
    // Row counts up to 128 share the plan that was tuned for 100 rows.
    for (product.rows = 1; product.rows <= 128; ++product.rows) {
      product.w = product.rows % 2 == 0 ? first.data() : second.data();
      REQUIRE((*matmul)->Run(product, cudaStreamPerThread).ok());
    }
    CHECK(host_device::Suggestions() == tuned);
    product.rows = 129;
    REQUIRE((*matmul)->Run(product, cudaStreamPerThread).ok());
    CHECK(host_device::Suggestions() > tuned);
    REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
  }
}

TEST_CASE("CudaBackend runs only projections that it tuned at its start") {
  for (const ModelConfig& shape : Shapes()) {
    const RandomWeights weights(shape, 1);
    Device device(weights, /*same_bits=*/false, 1, 1, {.tokens = 100, .logits = 18});
    const int64_t tuned = host_device::Suggestions();
    std::vector<TestSequence> sequences;
    for (uint32_t i = 0; i < 18; ++i) {
      sequences.push_back(device.Place(RandomTokens(101, weights.config.vocab, i)));
      device.Prefill(sequences.back(), 100, 1 + 6 * i);
    }
    for (const size_t streams : {1, 5, 18}) {
      Batch batch;
      for (size_t i = 0; i < streams; ++i) batch.slices.push_back(NextOf(sequences[i], 100));
      device.Run(batch);
    }
    CHECK(host_device::Suggestions() == tuned);
  }
}

}  // namespace
}  // namespace baton
