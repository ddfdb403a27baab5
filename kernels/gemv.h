// Projections of few rows, as in decode steps. Every weight is read once, and the time is that of
// reading the weights.
#pragma once

#include <cuda_runtime.h>

#include "kernels/paged_kv.h"

namespace baton::cuda {

// Upper bound on GemvArgs::rows.
inline constexpr int32_t kMaxGemvRows = 8;

// The arguments of y = x w^T + bias. The pointers are device pointers, 16-byte aligned. A row's
// bits do not depend on the other rows.
struct GemvArgs {
  const Bf16* x = nullptr;     // [rows, k]
  const Bf16* w = nullptr;     // [n, k]
  const Bf16* bias = nullptr;  // [n], or null
  int32_t rows = 0;            // 1 to kMaxGemvRows
  int32_t n = 0;
  int32_t k = 0;  // a multiple of 8

  void* y = nullptr;     // [rows, n], bf16 or fp32
  int64_t y_stride = 0;  // elements from row to row of y
  bool fp32_output = false;
  // True if the product is added to y. REQUIRES: y is fp32.
  bool add = false;
  // True if w is [gate; up], and y [rows, n / 2] = silu(gate x) * (up x) in bf16. n / 2 is a
  // multiple of 8.
  bool swiglu = false;
};

// Returns the number of rows of x that fit into a multiprocessor's memory on the current device, at
// most kMaxGemvRows. With k = 14,336, four rows fit on Hopper, one on an A100, and none on a device
// with 100 KB.
int32_t GemvRowsThatFit(int32_t k);

// Enqueues the product. Returns cudaErrorInvalidValue for invalid arguments, and if x does not fit.
cudaError_t LaunchGemv(const GemvArgs& args, cudaStream_t stream);

}  // namespace baton::cuda
