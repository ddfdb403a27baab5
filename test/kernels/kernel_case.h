// The table of kernel cases, for checks and for timing. Each case owns its inputs on the device.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

namespace baton::cuda {

struct KernelCase {
  std::string name;  // operation and shape, e.g. "decode_attention hd128 heads32/8 batch64 x 1024"
  // The least work of any implementation, for the roofline.
  double flops = 0;
  double bytes = 0;
  // Enqueues the operation and never synchronises. Callers may call it any number of times.
  std::function<cudaError_t(cudaStream_t)> launch;
  // Returns ||out - reference|| / ||reference|| after a launch. The CPU computes the reference in
  // float64 from the same bf16 inputs. Outputs begin as NaN, so the result is NaN if the kernel did
  // not write an output. Null in cases that are too large to check.
  std::function<double()> error;
  double tolerance = 4e-3;  // of the error, for bf16 outputs
};

enum class CaseSize {
  kCheck,  // small ragged random shapes, each with `error`
  kBench,  // shapes such as Llama-3.1-8B's that fill the device, without `error`
};

// Inputs are drawn from `seed`.
std::vector<KernelCase> PrefillAttentionCases(CaseSize size, uint64_t seed);
std::vector<KernelCase> DecodeAttentionCases(CaseSize size, uint64_t seed);
std::vector<KernelCase> SamplingCases(CaseSize size, uint64_t seed);
std::vector<KernelCase> ChosenTokensCases(CaseSize size, uint64_t seed);
std::vector<KernelCase> BlockCopyCases(CaseSize size, uint64_t seed);
std::vector<KernelCase> GemvCases(CaseSize size, uint64_t seed);
// Projections by cuBLASLt, which the machine must have.
std::vector<KernelCase> ProductCases(CaseSize size, uint64_t seed);
// Embedding, norm, rotary embedding with the KV store, SwiGLU.
std::vector<KernelCase> RowCases(CaseSize size, uint64_t seed);

}  // namespace baton::cuda
