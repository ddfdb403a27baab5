// Tests that compare every kernel with a float64 reference on random ragged inputs.
#include <iostream>

#include "catch.h"
#include "test/kernels/device_array.h"
#include "test/kernels/kernel_case.h"

namespace baton::cuda {
namespace {

bool HasDevice() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return true;
  std::cout << "SKIPPED: kernels: no CUDA device\n";
  return false;
}

void CheckAll(std::vector<KernelCase> (*make)(CaseSize, uint64_t)) {
  if (!HasDevice()) return;
  for (const uint64_t seed : {1, 2, 3}) {
    for (const KernelCase& test : make(CaseSize::kCheck, seed)) {
      INFO(test.name << ", seed " << seed);
      REQUIRE(test.launch(nullptr) == cudaSuccess);
      const cudaError_t ran = cudaDeviceSynchronize();
      INFO(cudaGetErrorString(ran));
      REQUIRE(ran == cudaSuccess);
      const double error = test.error();
      CHECK(error <= test.tolerance);
    }
  }
}

TEST_CASE("Embedding, norm, RoPE, KV store and SwiGLU kernels agree with float64") { CheckAll(RowCases); }
TEST_CASE("Projections of few rows agree with float64, alone and in a chain") { CheckAll(GemvCases); }
// The tag lets compute-sanitizer skip NVIDIA's own kernels.
TEST_CASE("Products by cuBLASLt agree with float64", "[cublaslt]") { CheckAll(ProductCases); }
TEST_CASE("Prefill attention agrees with float64") { CheckAll(PrefillAttentionCases); }
TEST_CASE("Decode attention agrees with float64") { CheckAll(DecodeAttentionCases); }
TEST_CASE("Block copies gather and scatter blocks bit for bit") { CheckAll(BlockCopyCases); }
TEST_CASE("Device sampling agrees with float64 and with the CPU's sampler") { CheckAll(SamplingCases); }
TEST_CASE("The chosen-tokens kernel writes a step's tokens where the next step reads") { CheckAll(ChosenTokensCases); }

}  // namespace
}  // namespace baton::cuda
