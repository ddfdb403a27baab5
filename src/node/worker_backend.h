// A worker's backend together with the connector for its KV.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backend/cpu/thread_pool.h"
#include "engine/decode/worker.h"
#include "node/device.h"
#include "node/loaded_model.h"
#include "node/options.h"
#include "transport/transport.h"

namespace baton {

// The KV of the backend lies in memory of the transports. Peers reach it through the connector.
struct WorkerBackend {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Connector> connector;
};

// The caller may free the weights of `model` after the call. REQUIRES: the transports outlive the
// result.
absl::StatusOr<WorkerBackend> MakeBackend(const LoadedModel& model, const WorkerOptions& options, bool lm_head,
                                          const Transports& transports);

// Returns a function that samples the rows of a batch on `pool`. REQUIRES: the pool outlives the
// result.
ParallelFor ParallelForOn(ThreadPool& pool);

}  // namespace baton
