// What a worker process is made of: a loaded model, its place on a device, transports and a backend.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backend/cpu/thread_pool.h"
#include "engine/decode/worker.h"
#include "model/weights.h"
#include "node/options.h"
#include "text/tokenizer.h"
#include "transport/in_process/transport.h"
#include "transport/transport.h"

namespace baton {

// The number of workers in a process.
struct Workers {
  int prefill = 0;
  int decode = 0;
  int all() const { return prefill + decode; }
};

// A model's checked weights, the devices that compute it, and the number of KV blocks that the options allow there.
struct LoadedModel {
  std::unique_ptr<Weights> weights;
  std::vector<int> cuda_devices;  // one for each rank; empty: the CPU
  StepLimits step;                // the largest step of any worker in the process
  int64_t blocks = 0;
  int64_t block_bytes = 0;

  // A copy without weights, for another model of the same shape on the same devices.
  LoadedModel Places() const { return {nullptr, cuda_devices, step, blocks, block_bytes}; }
};

// Loads the model of the options and chooses its devices. Fills in the options that depend on the device.
absl::StatusOr<LoadedModel> LoadModel(WorkerOptions& options, const Workers& workers);

// The digest of the module whose KV the worker continues: its prefill module, or its own weights.
absl::StatusOr<Digest> KvDigest(const WorkerOptions& options, const LoadedModel& model, const Tokenizer& tokenizer);

using Transports = std::vector<std::unique_ptr<Transport>>;  // one for each rank

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
