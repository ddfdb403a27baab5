// A tensor-parallel group of CUDA backends, with one rank on each device.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "backend/cuda/cuda_backend.h"

namespace baton {

// The device of a rank.
struct CudaRank {
  int device = 0;
  // A slab on the device for the rank's KV heads. Must outlive the backend.
  Slab slab = {};
};

// Returns a backend of `ranks`. The device and the slab in `options` are ignored. Errors: as for
// MakeCudaBackend and MakeDeviceCommunicators. INVALID_ARGUMENT also if the model cannot be split
// into that many ranks.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaGroup(const Weights& weights, std::span<const CudaRank> ranks,
                                                       const CudaBackendOptions& options);

}  // namespace baton
