#include "engine/decode/swap.h"

#include <iterator>
#include <new>
#include <span>
#include <vector>

#include "base/status.h"

namespace baton {

int64_t SwappedBytes(const DecodeStep& step, int64_t block_bytes) {
  int64_t blocks = 0;
  for (const std::span<const SwapCopy> copies : {step.out, step.in}) {
    for (const SwapCopy& copy : copies) blocks += std::ssize(copy.pieces);
  }
  return blocks * block_bytes;
}

absl::Status CopySwaps(const DecodeStep& step, const Slab& slab, int64_t block_bytes) {
  const auto bytes = static_cast<size_t>(block_bytes);
  std::vector<MemoryCopy> copies;
  for (const SwapCopy& copy : step.out) {
    copy.host->reset(new (std::nothrow) std::byte[copy.pieces.size() * bytes]);
    if (*copy.host == nullptr) continue;
    for (const SwapCopy::Piece& piece : copy.pieces) {
      copies.push_back({copy.host->get() + piece.index * bytes, slab.data() + piece.block.value() * bytes, bytes});
    }
  }
  RETURN_IF_ERROR(slab.Copy(copies));
  copies.clear();
  for (const SwapCopy& copy : step.in) {
    for (const SwapCopy::Piece& piece : copy.pieces) {
      copies.push_back({slab.data() + piece.block.value() * bytes, copy.host->get() + piece.index * bytes, bytes});
    }
  }
  return slab.Copy(copies);
}

}  // namespace baton
