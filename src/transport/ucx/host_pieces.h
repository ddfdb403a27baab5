// Memory of the host through which a device's slab is read and written where UCX cannot.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kv/slab.h"

namespace baton {

// Pieces of one size, which are used again: those from which a device copies fastest take long to make. On one thread.
class HostPieces {
 public:
  HostPieces(const Slab& slab, size_t piece_bytes) : slab_(slab), piece_bytes_(piece_bytes) {}

  // Comes back when it is let go, which may be after this object. Of more than a piece's bytes, of far fewer, or where
  // the device has no such memory left, it is ordinary memory.
  HostMemory Take(size_t bytes) {
    if (bytes > piece_bytes_ || 8 * bytes < piece_bytes_) return HostMemory(new std::byte[bytes]);
    if (spare_->empty()) {
      auto made = slab_.AllocateHost(piece_bytes_);
      spare_->push_back(made.ok() ? *std::move(made) : HostMemory(new std::byte[piece_bytes_]));
    }
    HostMemory piece = std::move(spare_->back());
    spare_->pop_back();
    std::byte* const at = piece.get();
    return HostMemory(
        at, [spare = spare_, piece = std::move(piece)](std::byte*) mutable { spare->push_back(std::move(piece)); });
  }
  size_t spare() const { return spare_->size(); }

 private:
  const Slab slab_;
  const size_t piece_bytes_;
  const std::shared_ptr<std::vector<HostMemory>> spare_ = std::make_shared<std::vector<HostMemory>>();
};

}  // namespace baton
