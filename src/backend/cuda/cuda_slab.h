// A slab in one device's memory.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "backend/cuda/cuda_memory.h"
#include "kv/slab.h"

namespace baton {

// Freed with this object. One plain cudaMalloc, so that other processes can map it (cuda_ipc).
class CudaSlab {
 public:
  // RESOURCE_EXHAUSTED, UNAVAILABLE: as CudaStatus.
  static absl::StatusOr<std::shared_ptr<CudaSlab>> Allocate(int device, int64_t bytes);
  Slab slab() const;

 private:
  DeviceBuffer<std::byte> memory_;
  const SlabDevice* device_ = nullptr;
};

}  // namespace baton
