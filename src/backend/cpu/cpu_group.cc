#include "backend/cpu/cpu_group.h"

#include <algorithm>
#include <utility>

#include "backend/cpu/memory_communicator.h"
#include "backend/tensor_parallel.h"
#include "base/check.h"
#include "base/status.h"
#include "model/shard.h"

namespace baton {

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuGroup(const Weights& weights, int ranks,
                                                      std::span<const std::span<std::byte>> slabs,
                                                      const CpuBackendOptions& options) {
  RETURN_IF_ERROR(CheckShard(weights.config, ranks));
  BATON_CHECK(slabs.empty() || std::ssize(slabs) == ranks, "expected one slab per rank, or none");
  std::vector<Rank> made;
  for (std::unique_ptr<Communicator>& communicator : MakeMemoryCommunicators(ranks)) {
    const int rank = communicator->rank();
    CpuBackendOptions own = options;
    own.threads = std::max(1, options.threads / ranks);
    own.communicator = communicator.get();
    if (!slabs.empty()) own.slab = slabs[rank];
    ASSIGN_OR_RETURN(auto backend, MakeCpuBackend(*ShardWeights(weights, {rank, ranks}), own));
    made.push_back({std::move(communicator), std::move(backend)});
  }
  return MakeTensorParallelBackend(std::move(made), CpuKvLayout(weights.config));
}

}  // namespace baton
