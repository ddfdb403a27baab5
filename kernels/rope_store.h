// The operation between the projection to q, k, v and attention: it normalises and rotates q and k,
// and stores K and V in their blocks.
#pragma once

#include <cuda_runtime.h>

#include "kernels/paged_kv.h"

namespace baton::cuda {

// The arguments of LaunchRopeStore. The pointers are device pointers.
struct RopeStoreArgs {
  // [rows, (heads + 2 kv_heads) * head_dim]. q is rotated in place, and k and v are only read.
  Bf16* qkv = nullptr;
  int32_t rows = 0;
  int32_t heads = 0;
  const int32_t* positions = nullptr;  // [rows]
  // [rows], the destination of a row's K and V: block * 16 + token. Negative for padding, whose K
  // and V are not stored.
  const int64_t* slots = nullptr;
  // [positions, head_dim]: head_dim / 2 cosines and then as many sines.
  const float* rope = nullptr;
  // Weights of the RMSNorm over head_dim before the rotation (Qwen3), [head_dim] each. Null if
  // there is no norm.
  const Bf16* q_norm = nullptr;
  const Bf16* k_norm = nullptr;
  float epsilon = 0;
  PagedKv kv;
};

// Enqueues the operation. Returns cudaErrorInvalidValue if there are no rows, or if head_dim is
// neither 64 nor 128.
cudaError_t LaunchRopeStore(const RopeStoreArgs& args, cudaStream_t stream);

}  // namespace baton::cuda
