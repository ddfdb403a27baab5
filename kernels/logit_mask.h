// Logits of ids that are never sampled.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace baton::cuda {

// Sets logits[row * stride + id] to -inf for each row and for each of ids[0, count). The pointers
// are device pointers. REQUIRES: all ids are in [0, stride).
cudaError_t LaunchLogitMask(const int32_t* ids, int32_t count, int32_t rows, int64_t stride, float* logits,
                            cudaStream_t stream);

}  // namespace baton::cuda
