// The SwiGLU activation (Shazeer, arXiv 2002.05202).
#pragma once

#include <cuda_runtime.h>

#include "kernels/paged_kv.h"

namespace baton::cuda {

// Computes out[row][i] = silu(gate_up[row][i]) * gate_up[row][columns + i]. The pointers are device
// pointers, 16-byte aligned. `columns` is a multiple of 8.
cudaError_t LaunchSwiGlu(const Bf16* gate_up,  // [rows, 2 * columns]
                         int32_t rows, int32_t columns,
                         Bf16* out,  // [rows, columns]
                         cudaStream_t stream);

}  // namespace baton::cuda
