// Host memory for the copies of a device's slab that UCX cannot read or write directly.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kv/slab.h"

namespace baton {

// A pool of pieces of one size. Pieces are reused, because the memory from which a device copies
// fastest is slow to allocate. Not thread-safe.
class HostPieces {
 public:
  HostPieces(const Slab& slab, size_t piece_bytes) : slab_(slab), piece_bytes_(piece_bytes) {}

  // Returns memory of at least `bytes` bytes. A piece returns to the pool when its last reference
  // ends, even after the end of this object. The result is ordinary memory if `bytes` is more than
  // a piece or less than an eighth of it, or if the device has no memory for a new piece.
  HostMemory Take(size_t bytes) {
    if (bytes > piece_bytes_ || 8 * bytes < piece_bytes_) return HostMemory(new std::byte[bytes]);
    if (free_pieces_->empty()) {
      auto made = slab_.AllocateHost(piece_bytes_);
      free_pieces_->push_back(made.ok() ? *std::move(made) : HostMemory(new std::byte[piece_bytes_]));
    }
    HostMemory piece = std::move(free_pieces_->back());
    free_pieces_->pop_back();
    std::byte* const at = piece.get();
    return HostMemory(at, [free_pieces = free_pieces_, piece = std::move(piece)](std::byte*) mutable {
      free_pieces->push_back(std::move(piece));
    });
  }
  size_t free_pieces() const { return free_pieces_->size(); }

 private:
  const Slab slab_;
  const size_t piece_bytes_;
  const std::shared_ptr<std::vector<HostMemory>> free_pieces_ = std::make_shared<std::vector<HostMemory>>();
};

}  // namespace baton
