#include "gpu_parts.h"

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_slab.h"
#include "base/status.h"

namespace baton {

absl::StatusOr<CudaDeviceInfo> FindCudaDevice(int device, const ModelConfig& config) {
  CudaDeviceInfo info;
  ASSIGN_OR_RETURN(info.description, DescribeCudaDevice(device));
  RETURN_IF_ERROR(CheckCudaDevice(device));
  RETURN_IF_ERROR(CheckCudaShape(config));
  ASSIGN_OR_RETURN(info.free_bytes, FreeCudaBytes(device));
  return info;
}

absl::StatusOr<Slab> AdoptCudaSlab(int device, int64_t bytes, Transport& transport) {
  ASSIGN_OR_RETURN(const auto memory, CudaSlab::Allocate(device, bytes + kSlabMarginBytes));
  RETURN_IF_ERROR(transport.AdoptSlab(memory->slab(), bytes, memory));
  return memory->slab().First(static_cast<size_t>(bytes));
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaWorkerBackend(const Weights& weights, const CudaWorkerOptions& options,
                                                               Transport& transport) {
  const int64_t bytes = options.blocks * CudaKvLayout(weights.config).BlockBytes();
  ASSIGN_OR_RETURN(const Slab slab, AdoptCudaSlab(options.device, bytes, transport));
  return MakeCudaBackend(
      weights, {.device = options.device, .slab = slab, .lm_head = options.lm_head, .same_bits = options.same_bits});
}

}  // namespace baton
