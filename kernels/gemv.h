// Projections of few rows, as decode steps have them: every weight is read once and there is little else to do, so that
// the time is that of reading.
#pragma once

#include <cuda_runtime.h>

#include "kernels/paged_kv.h"

namespace baton::cuda {

inline constexpr int32_t kMaxGemvRows = 8;

// y = x w^T + bias. Device pointers, 16-byte aligned. A row's bits do not depend on the other rows.
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
  bool add = false;  // to what y holds, which is fp32
  // w is [gate; up], and y [rows, n / 2] = silu(gate x) * (up x) in bf16; n / 2 is a multiple of 8.
  bool swiglu = false;
};

// How many rows of x fit into a multiprocessor's memory of the current device, at most kMaxGemvRows: with k of 14,336
// four on Hopper, one on an A100, none where it has 100 KB.
int32_t GemvRowsThatFit(int32_t k);

// cudaErrorInvalidValue also where x does not fit.
cudaError_t LaunchGemv(const GemvArgs& args, cudaStream_t stream);

}  // namespace baton::cuda
