#include "kernels/rms_norm.h"
#include "kernels/vectors.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ float SumOfWarp(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

// Grid: rows. The second pass over the row finds it in the cache. The sum's order depends on `columns` alone.
__global__ void RmsNormKernel(const float* x, const Bf16* weight, float epsilon, int32_t columns, Bf16* out) {
  const float* row = x + int64_t{blockIdx.x} * columns;
  float squares = 0;
  for (int i = 8 * threadIdx.x; i < columns; i += 8 * kThreads) {
    const Float8 v = Load8(row + i);
#pragma unroll
    for (const float value : v.values) squares += value * value;
  }
  __shared__ float of_warps[kWarps];
  squares = SumOfWarp(squares);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = squares;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (const float of_warp : of_warps) sum += of_warp;
  const float scale = rsqrtf(sum / static_cast<float>(columns) + epsilon);
  for (int i = 8 * threadIdx.x; i < columns; i += 8 * kThreads) {
    Float8 v = Load8(row + i);
    const Float8 w = Load8(weight + i);
#pragma unroll
    for (int j = 0; j < 8; ++j) v.values[j] *= scale * w.values[j];
    Store8(v, out + int64_t{blockIdx.x} * columns + i);
  }
}

}  // namespace

cudaError_t LaunchRmsNorm(const float* x, const Bf16* weight, float epsilon, int32_t rows, int32_t columns, Bf16* out,
                          cudaStream_t stream) {
  if (rows < 1 || columns % 8 != 0) return cudaErrorInvalidValue;
  RmsNormKernel<<<rows, kThreads, 0, stream>>>(x, weight, epsilon, columns, out);
  return cudaGetLastError();
}

}  // namespace baton::cuda
