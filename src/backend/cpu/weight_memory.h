// Memory for weights: huge pages that many weights share.
#pragma once

#include <cstddef>
#include <vector>

namespace baton {

// Not thread-safe. A decode step streams through all weights. With 4 KiB pages it would miss the
// TLB at each page, and the processor would stop prefetching at each page boundary. This costs a
// third of the bandwidth. Weights share huge pages because most weights are smaller than a huge
// page.
class WeightMemory {
 public:
  WeightMemory() = default;
  ~WeightMemory();
  WeightMemory(const WeightMemory&) = delete;
  WeightMemory& operator=(const WeightMemory&) = delete;

  // Returns zeroed memory, aligned to 64 bytes, that lives as long as this object. It lies directly
  // behind the previous piece if the chunk has space. Throws std::bad_alloc if there is no memory.
  std::byte* Allocate(size_t bytes);

 private:
  struct Chunk {
    std::byte* data;
    size_t bytes;
  };
  std::vector<Chunk> chunks_;
  size_t used_ = 0;  // bytes of the last chunk
};

}  // namespace baton
