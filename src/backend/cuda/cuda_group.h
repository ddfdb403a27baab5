// A model on several CUDA devices, computed by a rank on each.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "backend/cuda/cuda_backend.h"

namespace baton {

struct CudaRank {
  int device = 0;
  Slab slab = {};  // of the device, for the rank's KV heads; must outlive the backend
};

// `options`' device and slab are not looked at. Errors as MakeCudaBackend and MakeDeviceCommunicators; INVALID_ARGUMENT
// also: more ranks than the model can be shared out to.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaGroup(const Weights& weights, std::span<const CudaRank> ranks,
                                                       const CudaBackendOptions& options);

}  // namespace baton
