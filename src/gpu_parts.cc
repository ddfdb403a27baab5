#include "gpu_parts.h"

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_group.h"
#include "backend/cuda/cuda_slab.h"
#include "backend/cuda/device_communicator.h"
#include "backend/tensor_parallel.h"
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

absl::StatusOr<std::vector<int>> EmptiestCudaDevices(int count) { return EmptiestDevices(count); }

absl::StatusOr<std::string> CudaDevicesApart(std::span<const int> devices) { return DevicesApart(devices); }

int64_t CudaActivationBytes(const ModelConfig& part, const StepLimits& step) { return ActivationBytes(part, step); }

absl::StatusOr<Slab> AdoptCudaSlab(int device, int64_t bytes, Transport& transport) {
  ASSIGN_OR_RETURN(const auto memory, CudaSlab::Allocate(device, bytes + kSlabMarginBytes));
  RETURN_IF_ERROR(transport.AdoptSlab(memory->slab(), bytes, memory));
  return memory->slab().First(static_cast<size_t>(bytes));
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaWorkerBackend(const Weights& weights, const CudaWorkerOptions& options,
                                                               std::span<const std::unique_ptr<Transport>> transports) {
  const int count = static_cast<int>(options.devices.size());
  const KvLayout layout = CudaKvLayout(weights.config);
  std::vector<CudaRank> ranks;
  for (int rank = 0; rank < count; ++rank) {
    const int device = options.devices[static_cast<size_t>(rank)];
    const int64_t bytes = options.blocks * BlockBytesOf(layout, {rank, count});
    ASSIGN_OR_RETURN(const Slab slab, AdoptCudaSlab(device, bytes, *transports[static_cast<size_t>(rank)]));
    ranks.push_back({device, slab});
  }
  CudaBackendOptions backend{.step = options.step, .lm_head = options.lm_head, .same_bits = options.same_bits};
  if (count > 1) return MakeCudaGroup(weights, ranks, backend);
  backend.device = ranks[0].device;
  backend.slab = ranks[0].slab;
  return MakeCudaBackend(weights, backend);
}

}  // namespace baton
