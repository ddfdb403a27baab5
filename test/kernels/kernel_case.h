// The table that kernels are checked and timed from: each case holds its own inputs on the device.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

namespace baton::cuda {

struct KernelCase {
  std::string name;  // operation and shape, e.g. "decode_attention hd128 heads32/8 batch64 x 1024"
  // The least work that any implementation must do, for the roofline.
  double flops = 0;
  double bytes = 0;
  // Enqueues the operation; never synchronises. May be called any number of times.
  std::function<cudaError_t(cudaStream_t)> launch;
  // After a launch: ||out - reference|| / ||reference||, the reference in float64 on the CPU from the same bf16 inputs.
  // NaN where an output was not written (outputs are poisoned before). Null in cases that are too large to check.
  std::function<double()> error;
  double tolerance = 4e-3;  // of the error; bf16 outputs
};

enum class CaseSize {
  kCheck,  // small ragged random shapes, each with `error`
  kBench,  // the shapes of Llama-3.1-8B and the like, large enough to fill the device; without `error`
};

// Inputs are drawn from `seed`.
std::vector<KernelCase> PrefillAttentionCases(CaseSize size, uint64_t seed);
std::vector<KernelCase> DecodeAttentionCases(CaseSize size, uint64_t seed);
std::vector<KernelCase> SamplingCases(CaseSize size, uint64_t seed);
std::vector<KernelCase> ChosenTokensCases(CaseSize size, uint64_t seed);
std::vector<KernelCase> BlockCopyCases(CaseSize size, uint64_t seed);
std::vector<KernelCase> GemvCases(CaseSize size, uint64_t seed);
std::vector<KernelCase> ProductCases(CaseSize size, uint64_t seed);  // projections by cuBLASLt, which has to be here
std::vector<KernelCase> RowCases(CaseSize size, uint64_t seed);      // embedding, norm, rope + KV store, SwiGLU

}  // namespace baton::cuda
