// What a worker computes with: a backend whose KV transports move.
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
