#include "kernels/launch.cuh"
#include "kernels/swiglu.h"
#include "kernels/vectors.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

// Grid: (rows, columns / (8 * kThreads)).
__global__ void SwiGluKernel(const Bf16* gate_up, int32_t columns, Bf16* out) {
  LetNextStart();
  WaitForPrevious();
  const int i = 8 * (blockIdx.y * kThreads + threadIdx.x);
  if (i >= columns) return;
  const int64_t row = blockIdx.x;
  const Float8 gate = Load8(gate_up + 2 * row * columns + i);
  Float8 up = Load8(gate_up + (2 * row + 1) * columns + i);
#pragma unroll
  for (int j = 0; j < 8; ++j) up.values[j] *= Silu(gate.values[j]);
  Store8(up, out + row * columns + i);
}

}  // namespace

cudaError_t LaunchSwiGlu(const Bf16* gate_up, int32_t rows, int32_t columns, Bf16* out, cudaStream_t stream) {
  if (rows < 1 || columns % 8 != 0) return cudaErrorInvalidValue;
  const dim3 grid(rows, (columns / 8 + kThreads - 1) / kThreads);
  return LaunchEarly(SwiGluKernel, grid, kThreads, 0, stream, gate_up, columns, out);
}

}  // namespace baton::cuda
