// RMSNorm of a few rows by one block, for kernels that begin with it: to the same bits in all of them.
#pragma once

#include "kernels/vectors.cuh"

namespace baton::cuda {

inline constexpr int kNormThreads = 256;
inline constexpr int kNormWarps = kNormThreads / 32;

__device__ inline float SumOfWarp(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

// Rows [0, rows) of x, at most kRows of them at once: their loads are on their way together. Calls
// `write(row, column, values)` for eight columns from `column` on. The sum's order depends on `columns` alone.
// Past the first 2,048 kHeld columns x is read twice. `of_warps` may be used again only after a barrier. By all
// kNormThreads threads.
template <int kRows, int kHeld, typename Write>
__device__ void NormaliseRows(const float* x, const Bf16* weight, float epsilon, int rows, int columns,
                              float (&of_warps)[kRows][kNormWarps], Write write) {
  constexpr int kStep = 8 * kNormThreads;
  const int begin = 8 * static_cast<int>(threadIdx.x);
  const auto row_of = [&](int row) { return x + int64_t{row} * columns; };
  Float8 held[kRows][kHeld];
  uint4 weights[kHeld];
#pragma unroll
  for (int step = 0; step < kHeld; ++step) {
    if (begin + step * kStep < columns) weights[step] = *reinterpret_cast<const uint4*>(weight + begin + step * kStep);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const int i = begin + step * kStep;
      if (i < columns && row < rows) held[row][step] = Load8(row_of(row) + i);
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    float squares = 0;
    const auto add = [&](const Float8& v) {
#pragma unroll
      for (const float value : v.values) squares += value * value;
    };
#pragma unroll
    for (int step = 0; step < kHeld; ++step) {
      if (begin + step * kStep < columns && row < rows) add(held[row][step]);
    }
    if (row < rows) {
#pragma unroll 1
      for (int i = begin + kHeld * kStep; i < columns; i += kStep) add(Load8(row_of(row) + i));
    }
    squares = SumOfWarp(squares);
    if (threadIdx.x % 32 == 0) of_warps[row][threadIdx.x / 32] = squares;
  }
  __syncthreads();
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    if (row >= rows) return;
    float sum = 0;
#pragma unroll
    for (const float of_warp : of_warps[row]) sum += of_warp;
    const float scale = rsqrtf(sum / static_cast<float>(columns) + epsilon);
    const auto finish = [&](int i, Float8 v, const Float8& w) {
#pragma unroll
      for (int j = 0; j < 8; ++j) v.values[j] *= scale * w.values[j];
      write(row, i, v);
    };
#pragma unroll
    for (int step = 0; step < kHeld; ++step) {
      if (begin + step * kStep < columns) finish(begin + step * kStep, held[row][step], Widen(weights[step]));
    }
#pragma unroll 1
    for (int i = begin + kHeld * kStep; i < columns; i += kStep) finish(i, Load8(row_of(row) + i), Load8(weight + i));
  }
}

}  // namespace baton::cuda
