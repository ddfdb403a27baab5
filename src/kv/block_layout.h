// Where a token's K and V are inside a block.
#pragma once

#include <cstdint>

namespace baton {

inline constexpr int64_t kBlockTokens = 16;

// A block holds 16 tokens for all layers and is contiguous: [layer][k|v][kv_head][token][head_dim].
struct KvLayout {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t element_bytes = 2;  // 2: bf16, 4: f32 (for f32 checkpoints)

  int64_t HeadBytes() const { return kBlockTokens * head_dim * element_bytes; }  // one head's K or V
  int64_t LayerBytes() const { return 2 * kv_heads * HeadBytes(); }
  int64_t BlockBytes() const { return layers * LayerBytes(); }
  int64_t KOffset(int64_t layer, int64_t head) const { return layer * LayerBytes() + head * HeadBytes(); }
  int64_t VOffset(int64_t layer, int64_t head) const { return KOffset(layer, kv_heads + head); }

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

// Blocks needed for `tokens` tokens.
inline int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

}  // namespace baton
