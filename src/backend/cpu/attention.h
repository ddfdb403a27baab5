// What the attention kernels (attention.inl) are called with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

inline constexpr int64_t kBlockKeys = 16;  // kBlockTokens, and the width of a vector
// A history is attended in tiles, and tiles make spans, both counted from position 0. Spans may be attended by
// different threads and are merged in ascending order.
inline constexpr int64_t kAttentionTileKeys = 64;
inline constexpr int64_t kAttentionSpanKeys = 512;

// What rows have gathered from the keys they met, before division by the sum.
struct AttentionState {
  float* max = nullptr;     // [rows], of scores, which are logarithms to base 2; -infinity: met no key
  float* sums = nullptr;    // [rows, 16], of 2^(score - max), by lane
  float* values = nullptr;  // [rows, width], sum of 2^(score - max) v; width is head_dim rounded up to 16
};

// The keys and values of one sequence, layer and kv head.
struct KvHead {
  const std::byte* const* blocks = nullptr;  // blocks[p / 16] holds position p
  int64_t k_offset = 0;                      // bytes, of this layer's and head's keys in a block
  int64_t v_offset = 0;
  int64_t written = 0;  // positions from here on hold anything
};

// Rows of one sequence and one kv head: token by token the `group` query heads that share it.
struct AttentionArgs {
  const float* q = nullptr;  // head g of token t: q + t * q_stride + g * head_dim
  int64_t q_stride = 0;
  int64_t tokens = 0;
  int64_t group = 0;
  int64_t head_dim = 0;
  int64_t first_position = 0;  // of token 0
  float scale = 0;             // log2(e) / sqrt(head_dim)

  KvHead kv;    // written beyond every row's own position
  KvHead next;  // what this thread attends to after this; its first tile is fetched meanwhile. written = 0: nothing

  int64_t span = 0;              // keys [span * kAttentionSpanKeys, (span + 1) * kAttentionSpanKeys)
  int64_t next_span = 0;         // of `next`
  AttentionState state;          // result
  std::byte* scratch = nullptr;  // AttentionScratchBytes, aligned to 64 bytes
};

// For `rows` = tokens * group: a tile's values and the queries, as fp32 at most.
inline int64_t AttentionScratchBytes(int64_t rows, int64_t head_dim) {
  const int64_t width = (head_dim + 15) / 16 * 16;
  return (kAttentionTileKeys + rows) * width * static_cast<int64_t>(sizeof(float));
}

}  // namespace baton
