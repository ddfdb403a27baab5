// Types that the kernels share: the layout of K and V in a slab of blocks, and the slices of a
// ragged batch.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace baton::cuda {

using Bf16 = __nv_bfloat16;

// Tokens of a KV block.
inline constexpr int kBlockTokens = 16;

// One layer's K and V in a slab [block][layer][k|v][kv_head][token][head_dim]. Position p of a
// sequence is token p % 16 of block table[p / 16]. `Element` is the type of an element of K and V.
// Each kernel fixes it.
struct PagedKv {
  void* slab = nullptr;      // block 0, device memory
  int64_t blocks = 0;        // in the slab
  int64_t block_stride = 0;  // elements from block to block
  int64_t layer_offset = 0;  // elements from a block's start to this layer's K
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // 64 or 128

  // Elements of one head's K or V in a block.
  __host__ __device__ int64_t HeadStride() const { return int64_t{kBlockTokens} * head_dim; }
  template <typename Element>
  __host__ __device__ Element* K(int64_t block, int32_t head) const {
    return static_cast<Element*>(slab) + block * block_stride + layer_offset + head * HeadStride();
  }
  template <typename Element>
  __host__ __device__ Element* V(int64_t block, int32_t head) const {
    return K<Element>(block, kv_heads + head);
  }
};

// One sequence's share of a batch. Its `rows` queries have positions [start, start + rows). The
// query at position p attends to [0, p].
struct AttentionSlice {
  int32_t first_row = 0;  // in q and out
  int32_t rows = 0;
  int32_t start = 0;
  // Index in `block_tables` of the first entry of its block table, which covers [0, start + rows).
  int32_t table = 0;
};

// The arguments of attention. The pointers are device pointers.
struct AttentionArgs {
  // Head h of row r is at q + r * q_stride + h * head_dim, 16-byte aligned.
  const Bf16* q = nullptr;
  int64_t q_stride = 0;  // elements, a multiple of 8
  // Number of query heads, a multiple of kv.kv_heads. Head h reads KV head h / (heads / kv_heads).
  int32_t heads = 0;
  PagedKv kv;
  const AttentionSlice* slices = nullptr;
  const int32_t* block_tables = nullptr;  // the slices' tables of block ids, concatenated
  Bf16* out = nullptr;                    // [rows][heads][head_dim]
};

}  // namespace baton::cuda
