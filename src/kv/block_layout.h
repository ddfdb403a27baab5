// The layout of K and V inside a block.
#pragma once

#include <cstdint>

#include "kv/kv_format.h"

namespace baton {

inline constexpr int64_t kBlockTokens = 16;

// The order of the elements of one head's K or V. It is the order in which the backend's attention
// reads them, so that no step transposes its whole history.
enum class KvOrder : uint8_t {
  // For the CPU backend.
  // - f32: K is [head_dim][token], V is [token][head_dim].
  // - bf16: K is [head_dim / 2][token][2], V is [token / 2][head_dim][2].
  kPairs,
  // For CUDA. K and V are [token][head_dim].
  kRows,
};

// A block holds 16 tokens for all layers and is contiguous: [layer][k|v][kv_head][one head's K or
// V], where one head's K or V is its elements and then its scales (kv_format.h).
struct KvLayout {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  KvFormat format = KvFormat::kBf16;
  KvOrder order = KvOrder::kPairs;

  int64_t ElementBytes() const { return RowOf(format).element_bytes; }
  // Bytes of the elements of one head's K or V.
  int64_t HeadElementBytes() const { return kBlockTokens * head_dim * ElementBytes(); }
  // Bytes of one head's K or V: its elements and its scales.
  int64_t HeadBytes() const { return HeadElementBytes() + RowOf(format).scale_bytes; }
  // A plane is the K or the V of one layer of a block.
  int64_t planes() const { return 2 * layers; }
  int64_t PlaneBytes() const { return kv_heads * HeadBytes(); }
  int64_t LayerBytes() const { return 2 * PlaneBytes(); }
  int64_t BlockBytes() const { return layers * LayerBytes(); }
  int64_t KOffset(int64_t layer, int64_t head) const { return layer * LayerBytes() + head * HeadBytes(); }
  int64_t VOffset(int64_t layer, int64_t head) const { return KOffset(layer, kv_heads + head); }

  // Return the offset, in elements, of dimension i of the token at `slot` in [0, 16). The offset is
  // relative to the start of a head's K or V.
  int64_t KIndex(int64_t slot, int64_t i) const {
    if (order == KvOrder::kRows) return slot * head_dim + i;
    return (i / Pair() * kBlockTokens + slot) * Pair() + i % Pair();
  }
  int64_t VIndex(int64_t slot, int64_t i) const { return (slot / Pair() * head_dim + i) * Pair() + slot % Pair(); }
  // Number of elements that lie side by side for one multiplication. In kPairs they fill 32 bits.
  int64_t Pair() const { return order == KvOrder::kPairs ? 4 / ElementBytes() : 1; }

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

// Returns the number of blocks that `tokens` tokens need.
inline int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

}  // namespace baton
