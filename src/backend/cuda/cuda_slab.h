// A slab of KV blocks in the memory of one device.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "backend/cuda/cuda_memory.h"
#include "kv/slab.h"

namespace baton {

// Owns one plain cudaMalloc, so that other processes can map it (cuda_ipc).
class CudaSlab {
 public:
  // RESOURCE_EXHAUSTED, UNAVAILABLE: as for CudaStatus. INVALID_ARGUMENT: `bytes` is below 1.
  static absl::StatusOr<std::shared_ptr<CudaSlab>> Allocate(int device, int64_t bytes);
  // The slab is valid as long as this object.
  Slab slab() const;

 private:
  DeviceBuffer<std::byte> memory_;
  const SlabDevice* device_ = nullptr;
};

}  // namespace baton
