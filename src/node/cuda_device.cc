#include "node/cuda_device.h"

#include <algorithm>
#include <limits>
#include <string>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_group.h"
#include "backend/cuda/cuda_slab.h"
#include "backend/cuda/device_communicator.h"
#include "backend/tensor_parallel.h"
#include "base/logging.h"
#include "base/status.h"
#include "model/shard.h"

namespace baton {
namespace {

// Returns the bytes of the weights on a GPU. `head` includes the LM head.
int64_t WeightBytes(const Weights& weights, bool head) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : TensorsOf(weights)) {
    if (tensor == &weights.lm_head && !head) continue;
    bytes += tensor->rows * tensor->cols * BytesPerElement(tensor->dtype);
  }
  return bytes;
}

// Returns the memory that one rank's device leaves for KV blocks, beside weights and activations.
// The result counts each block at its size over all ranks, in bytes.
int64_t RoomForBlocks(const LoadedModel& model, Shard shard, int64_t free_bytes) {
  const KvLayout layout = CudaKvLayout(model.weights->config);
  const auto part = ShardWeights(*model.weights, shard);
  const int64_t left =
      free_bytes - WeightBytes(*part, model.step.logits > 0) - ActivationBytes(part->config, model.step);
  const int64_t blocks = left / BlockBytesOf(layout, shard);
  return blocks * model.block_bytes;
}

}  // namespace

absl::StatusOr<std::vector<int>> CudaDevice::Find(const WorkerOptions& options, const ModelConfig& config) const {
  ASSIGN_OR_RETURN(std::vector<int> devices, CudaDevices(options));
  if (devices.empty()) {
    ASSIGN_OR_RETURN(devices, EmptiestDevices(options.tensor_parallel));
  }
  for (const int device : devices) {
    RETURN_IF_ERROR(DescribeCudaDevice(device).status());
    RETURN_IF_ERROR(CheckCudaDevice(device));
    // This call fails if the device is full or reserved by another process.
    RETURN_IF_ERROR(FreeCudaBytes(device).status());
  }
  RETURN_IF_ERROR(CheckCudaShape(config));
  return devices;
}

KvLayout CudaDevice::KvLayoutOf(const ModelConfig& config) const { return CudaKvLayout(config); }

// The rank with the least free memory determines the result.
absl::StatusOr<int64_t> CudaDevice::BlocksThatFit(const WorkerOptions& options, const Workers& workers,
                                                  const LoadedModel& model) const {
  int64_t room = std::numeric_limits<int64_t>::max();
  const std::vector<int>& devices = model.devices;
  const int ranks = static_cast<int>(devices.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const int device = devices[static_cast<size_t>(rank)];
    ASSIGN_OR_RETURN(const std::string description, DescribeCudaDevice(device));
    ASSIGN_OR_RETURN(const int64_t free_bytes, FreeCudaBytes(device));
    spdlog::info("computing on CUDA device {}: {}", device, description);
    const int64_t sharing = workers.all() * std::count(devices.begin(), devices.end(), device);
    room = std::min(room, RoomForBlocks(model, {rank, ranks}, free_bytes / sharing));
  }
  ASSIGN_OR_RETURN(const std::string apart, DevicesApart(devices));
  if (!apart.empty()) {
    spdlog::warn(
        "tensor parallelism: CUDA devices {} cannot access each other's memory, so their sums go through host memory",
        apart);
  }
  return KvBlocksOnDevice(options, model.block_bytes, room);
}

absl::StatusOr<Slab> CudaDevice::MakeSlab(int device, int64_t bytes, Transport& transport) const {
  ASSIGN_OR_RETURN(const auto memory, CudaSlab::Allocate(device, bytes + kSlabMarginBytes));
  RETURN_IF_ERROR(transport.AdoptSlab(memory->slab(), bytes, memory));
  return memory->slab().First(static_cast<size_t>(bytes));
}

absl::StatusOr<std::unique_ptr<Backend>> CudaDevice::MakeBackend(const LoadedModel& model, const WorkerOptions& options,
                                                                 bool lm_head, const Transports& transports) const {
  const int count = static_cast<int>(model.devices.size());
  const KvLayout layout = CudaKvLayout(model.weights->config);
  std::vector<CudaRank> ranks;
  for (int rank = 0; rank < count; ++rank) {
    const int device = model.devices[static_cast<size_t>(rank)];
    const int64_t bytes = model.blocks * BlockBytesOf(layout, {rank, count});
    ASSIGN_OR_RETURN(const Slab slab, MakeSlab(device, bytes, *transports[static_cast<size_t>(rank)]));
    ranks.push_back({device, slab});
  }
  CudaBackendOptions backend{.lm_head = lm_head, .unnamed = model.unnamed, .same_bits = options.same_bits};
  backend.step = lm_head ? StepLimits{model.step.logits, model.step.logits} : StepLimits{model.step.tokens, 0};
  if (count > 1) return MakeCudaGroup(*model.weights, ranks, backend);
  backend.device = ranks[0].device;
  backend.slab = ranks[0].slab;
  return MakeCudaBackend(*model.weights, backend);
}

}  // namespace baton
