#include <cmath>

#include "kernels/logit_mask.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

// Grid: rows, ids / kThreads. The limit of y, 65,535, allows 2^24 - 256 ids.
__global__ void __launch_bounds__(kThreads)
    LogitMaskKernel(const int32_t* ids, int32_t count, int64_t stride, float* logits) {
  const int i = blockIdx.y * kThreads + threadIdx.x;
  if (i < count) logits[blockIdx.x * stride + ids[i]] = -INFINITY;
}

}  // namespace

cudaError_t LaunchLogitMask(const int32_t* ids, int32_t count, int32_t rows, int64_t stride, float* logits,
                            cudaStream_t stream) {
  if (rows < 1 || count < 1) return cudaErrorInvalidValue;
  const dim3 grid(rows, (count + kThreads - 1) / kThreads);
  LogitMaskKernel<<<grid, kThreads, 0, stream>>>(ids, count, stride, logits);
  return cudaGetLastError();
}

}  // namespace baton::cuda
