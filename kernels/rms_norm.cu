#include "kernels/launch.cuh"
#include "kernels/rms_norm.cuh"
#include "kernels/rms_norm.h"

namespace baton::cuda {
namespace {

// Grid: rows.
__global__ void RmsNormKernel(const float* x, const Bf16* weight, float epsilon, int32_t columns, Bf16* out) {
  __shared__ float of_warps[1][kNormWarps];
  const int64_t start = int64_t{blockIdx.x} * columns;
  LetNextStart();
  WaitForPrevious();
  NormaliseRows<1, 4>(x + start, weight, epsilon, 1, columns, of_warps,
                      [&](int, int column, const Float8& values) { Store8(values, out + start + column); });
}

}  // namespace

cudaError_t LaunchRmsNorm(const float* x, const Bf16* weight, float epsilon, int32_t rows, int32_t columns, Bf16* out,
                          cudaStream_t stream) {
  if (rows < 1 || columns % 8 != 0) return cudaErrorInvalidValue;
  return LaunchEarly(RmsNormKernel, dim3(rows), kNormThreads, 0, stream, x, weight, epsilon, columns, out);
}

}  // namespace baton::cuda
