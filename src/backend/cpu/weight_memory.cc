#include "backend/cpu/weight_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace baton {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// The system backs only pages that are touched.
constexpr size_t kChunkBytes = 16 * kHugePage;

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

}  // namespace

WeightMemory::~WeightMemory() {
  for (const Chunk& chunk : chunks_) munmap(chunk.data, chunk.bytes);
}

std::byte* WeightMemory::Allocate(size_t bytes) {
  bytes = RoundUp(bytes, 64);
  if (chunks_.empty() || chunks_.back().bytes - used_ < bytes) {
    const size_t chunk_bytes = RoundUp(std::max(bytes, kChunkBytes), kHugePage) + kHugePage;
    void* p = mmap(nullptr, chunk_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    // A failure only costs speed.
    madvise(p, chunk_bytes, MADV_HUGEPAGE);
    chunks_.push_back({static_cast<std::byte*>(p), chunk_bytes});
    const auto address = reinterpret_cast<uintptr_t>(p);
    used_ = RoundUp(address, kHugePage) - address;
  }
  std::byte* piece = chunks_.back().data + used_;
  used_ += bytes;
  return piece;
}

}  // namespace baton
