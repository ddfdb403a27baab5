#include "kernels/launch.cuh"
#include "kernels/rms_norm.h"
#include "kernels/vectors.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kStep = 8 * kThreads;
// Steps of a row that stay in registers. Further columns are read twice.
constexpr int kHeld = 4;

__device__ float SumOfWarp(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

__device__ float SumOfSquares(const Float8& v) {
  float squares = 0;
#pragma unroll
  for (const float value : v.values) squares += value * value;
  return squares;
}

// Normalises one row per CTA. The order of the sum depends on `columns` alone.
__global__ void RmsNormKernel(const float* x, const Bf16* weight, float epsilon, int32_t columns, Bf16* out) {
  __shared__ float of_warps[kWarps];
  const int64_t start = int64_t{blockIdx.x} * columns;
  const int begin = 8 * static_cast<int>(threadIdx.x);
  x += start;
  out += start;
  LetNextStart();
  uint4 weights[kHeld];
#pragma unroll
  for (int step = 0; step < kHeld; ++step) {
    if (begin + step * kStep < columns) weights[step] = *reinterpret_cast<const uint4*>(weight + begin + step * kStep);
  }
  WaitForPrevious();  // the previous kernel does not write weights
  Float8 held[kHeld];
#pragma unroll
  for (int step = 0; step < kHeld; ++step) {
    if (begin + step * kStep < columns) held[step] = Load8(x + begin + step * kStep);
  }
  float squares = 0;
#pragma unroll
  for (int step = 0; step < kHeld; ++step) {
    if (begin + step * kStep < columns) squares += SumOfSquares(held[step]);
  }
#pragma unroll 1
  for (int i = begin + kHeld * kStep; i < columns; i += kStep) squares += SumOfSquares(Load8(x + i));
  squares = SumOfWarp(squares);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = squares;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (const float of_warp : of_warps) sum += of_warp;
  const float scale = rsqrtf(sum / static_cast<float>(columns) + epsilon);
  const auto finish = [&](int i, Float8 v, const Float8& w) {
#pragma unroll
    for (int j = 0; j < 8; ++j) v.values[j] *= scale * w.values[j];
    Store8(v, out + i);
  };
#pragma unroll
  for (int step = 0; step < kHeld; ++step) {
    if (begin + step * kStep < columns) finish(begin + step * kStep, held[step], Widen(weights[step]));
  }
#pragma unroll 1
  for (int i = begin + kHeld * kStep; i < columns; i += kStep) finish(i, Load8(x + i), Load8(weight + i));
}

}  // namespace

cudaError_t LaunchRmsNorm(const float* x, const Bf16* weight, float epsilon, int32_t rows, int32_t columns, Bf16* out,
                          cudaStream_t stream) {
  if (rows < 1 || columns % 8 != 0) return cudaErrorInvalidValue;
  return LaunchEarly(RmsNormKernel, dim3(rows), kThreads, 0, stream, x, weight, epsilon, columns, out);
}

}  // namespace baton::cuda
