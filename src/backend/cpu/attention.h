// The arguments of the attention kernels (attention.inl).
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

// Keys of a KV block, equal to kBlockTokens. Also the width of a vector.
inline constexpr int64_t kBlockKeys = 16;
// Attention walks a history in tiles of keys. Tiles form spans, and both are counted from position
// 0. Different threads may attend to the spans of a row, and the results are merged in ascending
// order.
inline constexpr int64_t kAttentionTileKeys = 64;
inline constexpr int64_t kAttentionSpanKeys = 512;

// The online softmax of some rows over the keys that they have met so far, before the division by
// the sum.
struct AttentionState {
  // [rows], the largest score, as a logarithm to base 2. -infinity if the row has met no key.
  float* max = nullptr;
  // [rows, 16], sum of 2^(score - max) in each lane.
  float* sums = nullptr;
  // [rows, width], sum of 2^(score - max) v. The width is head_dim rounded up to 16.
  float* values = nullptr;
};

// The keys and values of one sequence, layer and KV head.
struct KvHead {
  // blocks[p / 16] holds position p.
  const std::byte* const* blocks = nullptr;
  // Bytes from the start of a block to this layer's and head's keys.
  int64_t k_offset = 0;
  // Bytes from the start of a block to this layer's and head's values.
  int64_t v_offset = 0;
  // Positions from here on are undefined.
  int64_t written = 0;
};

// Rows of one sequence and one KV head, for one span of keys. Each token has one row for each of
// the `group` query heads that share the KV head.
struct AttentionArgs {
  // Head g of token t is at q + t * q_stride + g * head_dim.
  const float* q = nullptr;
  int64_t q_stride = 0;
  int64_t tokens = 0;
  int64_t group = 0;
  int64_t head_dim = 0;
  int64_t first_position = 0;  // of token 0
  float scale = 0;             // log2(e) / sqrt(head_dim)

  // Written beyond the position of every row.
  KvHead kv;
  // The keys and values that this thread attends to next. The kernel prefetches their first tile.
  // `written` is 0 if there are none.
  KvHead next;

  // The span of keys [span * kAttentionSpanKeys, (span + 1) * kAttentionSpanKeys).
  int64_t span = 0;
  int64_t next_span = 0;  // span of `next`
  AttentionState state;   // result
  // AttentionScratchBytes, aligned to 64 bytes.
  std::byte* scratch = nullptr;
};

// Bytes for a tile's values and the queries in the widest format, fp32. `rows` is tokens * group.
inline int64_t AttentionScratchBytes(int64_t rows, int64_t head_dim) {
  const int64_t width = (head_dim + 15) / 16 * 16;
  return (kAttentionTileKeys + rows) * width * static_cast<int64_t>(sizeof(float));
}

}  // namespace baton
