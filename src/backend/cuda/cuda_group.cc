#include "backend/cuda/cuda_group.h"

#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/device_communicator.h"
#include "backend/tensor_parallel.h"
#include "base/status.h"
#include "model/shard.h"

namespace baton {

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaGroup(const Weights& weights, std::span<const CudaRank> ranks,
                                                       const CudaBackendOptions& options) {
  const int count = static_cast<int>(ranks.size());
  RETURN_IF_ERROR(CheckShard(weights.config, count));
  std::vector<int> devices;
  for (const CudaRank& rank : ranks) devices.push_back(rank.device);
  ASSIGN_OR_RETURN(auto communicators, MakeDeviceCommunicators(devices));

  // In parallel, because each backend takes seconds to choose its kernels.
  std::vector<absl::StatusOr<std::unique_ptr<Backend>>> backends(ranks.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      CudaBackendOptions own = options;
      own.device = ranks[rank].device;
      own.slab = ranks[rank].slab;
      own.communicator = communicators[rank].get();
      backends[rank] = MakeCudaBackend(*ShardWeights(weights, {static_cast<int>(rank), count}), own);
    });
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<Rank> made;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RETURN_IF_ERROR(backends[rank].status());
    made.push_back({std::move(communicators[rank]), *std::move(backends[rank])});
  }
  return MakeTensorParallelBackend(std::move(made), CudaKvLayout(weights.config));
}

}  // namespace baton
