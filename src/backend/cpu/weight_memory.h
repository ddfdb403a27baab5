// Memory for weights: huge pages, shared by many weights.
#pragma once

#include <cstddef>
#include <vector>

namespace baton {

// A decode step streams through all weights. With 4 KiB pages it would miss the TLB at each and the processor would
// stop fetching ahead at each boundary, which costs a third of the bandwidth; and most weights are smaller than a huge
// page.
class WeightMemory {
 public:
  WeightMemory() = default;
  ~WeightMemory();
  WeightMemory(const WeightMemory&) = delete;
  WeightMemory& operator=(const WeightMemory&) = delete;

  // Zeroed, aligned to 64 bytes, right behind the last piece where that is possible. Lives as long as this object.
  std::byte* Allocate(size_t bytes);

 private:
  struct Chunk {
    std::byte* data;
    size_t bytes;
  };
  std::vector<Chunk> chunks_;
  size_t used_ = 0;  // of the last chunk
};

}  // namespace baton
