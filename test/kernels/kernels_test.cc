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

TEST_CASE("embedding, norm, rotary embedding, KV store and SwiGLU agree with float64") { CheckAll(RowCases); }
TEST_CASE("projections of few rows agree with float64, alone and in a row") { CheckAll(GemvCases); }
// The tag lets compute-sanitizer skip NVIDIA's own kernels.
TEST_CASE("products by cuBLASLt agree with float64", "[cublaslt]") { CheckAll(ProductCases); }
TEST_CASE("prefill attention agrees with float64") { CheckAll(PrefillAttentionCases); }
TEST_CASE("decode attention agrees with float64") { CheckAll(DecodeAttentionCases); }
TEST_CASE("blocks are gathered and scattered bit for bit") { CheckAll(BlockCopyCases); }
TEST_CASE("sampling on the device chooses what float64 and the CPU's sampler do") { CheckAll(SamplingCases); }
TEST_CASE("what a step chose is put where the next one reads it") { CheckAll(ChosenTokensCases); }

}  // namespace
}  // namespace baton::cuda
