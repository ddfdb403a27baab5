#include "engine/decode_swap.h"

#include <cstring>
#include <new>

namespace baton {

void CopySwaps(const DecodeStep& step, std::span<std::byte> slab, int64_t block_bytes) {
  const auto bytes = static_cast<size_t>(block_bytes);
  for (const SwapCopy& copy : step.out) {
    copy.host->reset(new (std::nothrow) std::byte[copy.pieces.size() * bytes]);
    if (*copy.host == nullptr) continue;
    for (const SwapCopy::Piece& piece : copy.pieces) {
      std::memcpy(copy.host->get() + piece.index * bytes, &slab[piece.block.value() * bytes], bytes);
    }
  }
  for (const SwapCopy& copy : step.in) {
    for (const SwapCopy::Piece& piece : copy.pieces) {
      std::memcpy(&slab[piece.block.value() * bytes], copy.host->get() + piece.index * bytes, bytes);
    }
  }
}

}  // namespace baton
