// What a worker computes with: transports and a backend whose KV they move.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backend/cpu/thread_pool.h"
#include "engine/decode/worker.h"
#include "node/device.h"
#include "node/loaded_model.h"
#include "node/options.h"
#include "transport/in_process/transport.h"
#include "transport/transport.h"

namespace baton {

Transports MakeInProcessTransports(const WorkerOptions& options, const std::shared_ptr<InProcessNetwork>& network);

// The transports by which blocks reach workers of other processes. With --guard-kv blocks move by gRPC, so the slabs
// are visible to this process alone, and UCX, by which a peer could write to any address, is not used.
absl::StatusOr<Transports> MakeTransports(const WorkerOptions& options);

// The backend, and the connector by which peers reach its KV. The KV lies in memory of the transports.
struct WorkerBackend {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Connector> connector;
};

// The weights of `model` may be freed afterwards. The transports must outlive the result.
absl::StatusOr<WorkerBackend> MakeBackend(const LoadedModel& model, const WorkerOptions& options, bool lm_head,
                                          const Transports& transports);

// Samples the rows of a batch on the pool, which must outlive the result.
ParallelFor SampleOn(ThreadPool& pool);

}  // namespace baton
