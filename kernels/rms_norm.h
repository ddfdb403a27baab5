// RMSNorm (Zhang and Sennrich, arXiv 1910.07467) of the residual stream. The preceding projection
// adds the residual, because its matrix product accumulates into the hidden state.
#pragma once

#include <cuda_runtime.h>

#include "kernels/paged_kv.h"

namespace baton::cuda {

// Computes out[row][i] = x[row][i] / sqrt(mean(x[row]^2) + epsilon) * weight[i]. The pointers are
// device pointers, 16-byte aligned. `columns` is a multiple of 8.
cudaError_t LaunchRmsNorm(const float* x, const Bf16* weight, float epsilon, int32_t rows, int32_t columns,
                          Bf16* out,  // [rows, columns]
                          cudaStream_t stream);

}  // namespace baton::cuda
