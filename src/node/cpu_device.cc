#include "node/cpu_device.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_group.h"
#include "backend/tensor_parallel.h"
#include "base/status.h"
#include "model/shard.h"
#include "node/memory_limit.h"

namespace baton {
namespace {

absl::StatusOr<std::unique_ptr<Backend>> MakeOnCpu(const LoadedModel& model, const WorkerOptions& options, bool lm_head,
                                                   const Transports& transports) {
  const KvLayout layout = CpuKvLayout(model.weights->config);
  const int ranks = static_cast<int>(transports.size());
  std::vector<std::span<std::byte>> slabs;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t bytes = model.blocks * BlockBytesOf(layout, {rank, ranks});
    ASSIGN_OR_RETURN(slabs.emplace_back(), transports[static_cast<size_t>(rank)]->AllocateSlab(bytes));
  }
  CpuBackendOptions cpu{.threads = Threads(options), .lm_head = lm_head, .unnamed = model.unnamed};
  if (ranks > 1) return MakeCpuGroup(*model.weights, ranks, slabs, cpu);
  cpu.slab = slabs[0];
  return MakeCpuBackend(*model.weights, cpu);
}

}  // namespace

absl::StatusOr<std::vector<int>> CpuDevice::Find(const WorkerOptions& options, const ModelConfig&) const {
  return std::vector<int>(static_cast<size_t>(options.tensor_parallel), 0);
}

KvLayout CpuDevice::KvLayoutOf(const ModelConfig& config) const { return CpuKvLayout(config); }

absl::StatusOr<int64_t> CpuDevice::BlocksThatFit(const WorkerOptions& options, const Workers&,
                                                 const LoadedModel& model) const {
  return KvBlocks(options, model.block_bytes);
}

absl::StatusOr<Slab> CpuDevice::MakeSlab(int, int64_t bytes, Transport& transport) const {
  ASSIGN_OR_RETURN(const std::span<std::byte> memory, transport.AllocateSlab(bytes));
  return Slab(memory);
}

absl::StatusOr<std::unique_ptr<Backend>> CpuDevice::MakeBackend(const LoadedModel& model, const WorkerOptions& options,
                                                                bool lm_head, const Transports& transports) const {
  auto made = MakeOnCpu(model, options, lm_head, transports);
  if (!absl::IsResourceExhausted(made.status())) return made;
  return absl::ResourceExhaustedError(absl::StrCat(made.status().message(), kMemoryRemedy));
}

}  // namespace baton
