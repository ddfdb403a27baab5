// Between the projection to q, k, v and attention: norms of q and k, rotary embedding, and K and V into their blocks.
#pragma once

#include <cuda_runtime.h>

#include "kernels/paged_kv.h"

namespace baton::cuda {

struct RopeStoreArgs {
  Bf16* qkv = nullptr;  // [rows, (heads + 2 kv_heads) * head_dim]: q is turned in place, k and v are only read
  int32_t rows = 0;
  int32_t heads = 0;
  const int32_t* positions = nullptr;  // [rows]
  // [rows]: where a row's K and V go, block * 16 + token. Negative: nowhere (a row that only fills up a batch).
  const int64_t* slots = nullptr;
  const float* rope = nullptr;  // [positions, head_dim]: head_dim / 2 cosines, then as many sines
  // RMSNorm over head_dim before the turn (Qwen3), [head_dim] each; null: none.
  const Bf16* q_norm = nullptr;
  const Bf16* k_norm = nullptr;
  float epsilon = 0;
  PagedKv kv;
};

cudaError_t LaunchRopeStore(const RopeStoreArgs& args, cudaStream_t stream);

}  // namespace baton::cuda
