// The lookup of tokens' embeddings, and the gathering of rows.
#pragma once

#include <cuda_runtime.h>

#include "kernels/paged_kv.h"

namespace baton::cuda {

// Computes out[row] = table[tokens[row]], widened to fp32. The pointers are device pointers,
// 16-byte aligned. `columns` is a multiple of 8.
cudaError_t LaunchEmbedding(const Bf16* table, const int32_t* tokens, int32_t rows, int32_t columns,
                            float* out,  // [rows, columns]
                            cudaStream_t stream);

// Computes to[row] = from[ids[row]], for the rows with which a pass continues. `to` is not `from`.
cudaError_t LaunchGatherRows(const float* from, const int32_t* ids, int32_t rows, int32_t columns, float* to,
                             cudaStream_t stream);
cudaError_t LaunchGatherRows(const Bf16* from, const int32_t* ids, int32_t rows, int32_t columns, Bf16* to,
                             cudaStream_t stream);

}  // namespace baton::cuda
