// The concrete parts that the programs' mains have in common.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_group.h"
#include "backend/cpu/thread_pool.h"
#include "backend/tensor_parallel.h"
#include "base/logging.h"
#include "base/status.h"
#include "engine/decode_worker.h"
#include "engine/staging_file.h"
#include "gpu_parts.h"
#include "model/prefill_module.h"
#include "model/shard.h"
#include "model/weights.h"
#include "server/options.h"
#include "server/program.h"
#include "transport/in_process_transport.h"
#include "transport/striped_connector.h"
#include "transport/transport.h"
#include "transport/ucx_transport.h"

namespace baton {

// The workers of a process.
struct Workers {
  int prefill = 0;
  int decode = 0;
  int all() const { return prefill + decode; }
};

// A model's weights, checked, where it will compute, and how many blocks of KV the options give it there.
struct LoadedModel {
  std::unique_ptr<Weights> weights;
  std::vector<int> cuda_devices;  // one for each rank; none: the CPU
  StepLimits step;                // the largest, of any of the process's workers
  int64_t blocks = 0;
  int64_t block_bytes = 0;

  // All but the weights, for another model of the same shape beside it.
  LoadedModel Places() const { return {nullptr, cuda_devices, step, blocks, block_bytes}; }
};

// On a GPU; `head`: it makes logits.
inline int64_t WeightBytes(const Weights& weights, bool head) {
  int64_t elements = weights.embedding.rows * weights.embedding.cols;
  const bool tied = weights.config.tied_embeddings && weights.lm_head.rows == weights.embedding.rows;
  if (head && !tied) elements += weights.lm_head.rows * weights.lm_head.cols;
  for (const LayerWeights& layer : weights.layers) {
    for (const Tensor& t : {layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down}) {
      elements += t.rows * t.cols;
    }
  }
  return elements * BytesPerElement(weights.config.dtype);
}

inline absl::StatusOr<std::vector<CudaDeviceInfo>> FindCudaDevices(const std::vector<int>& devices,
                                                                   const ModelConfig& config) {
  std::vector<CudaDeviceInfo> found;
  for (const int device : devices) {
    ASSIGN_OR_RETURN(found.emplace_back(), FindCudaDevice(device, config));
  }
  return found;
}

// Bytes of the model's KV blocks that a rank's device has room for its part of, after its weights and activations.
inline int64_t RoomForBlocks(const LoadedModel& model, Shard shard, int64_t free_bytes) {
  const KvLayout layout = CpuKvLayout(model.weights->config);
  const auto part = ShardWeights(*model.weights, shard);
  const int64_t left =
      free_bytes - WeightBytes(*part, model.step.logits > 0) - CudaActivationBytes(part->config, model.step);
  const int64_t blocks = left / BlockBytesOf(layout, shard);
  return blocks * model.block_bytes;
}

// Fills in what the options leave to the device.
inline void SetSteps(WorkerOptions& options, const Workers& workers, LoadedModel& model) {
  SetStepDefaults(options, !model.cuda_devices.empty());
  model.step.logits = workers.decode > 0 ? options.max_batch : 0;
  model.step.tokens = std::max(workers.prefill > 0 ? options.step_tokens : 0, model.step.logits);
}

// Sizes the KV memory by the rank that has least room for it.
inline absl::Status SizeOnDevices(const WorkerOptions& options, const Workers& workers,
                                  const std::vector<CudaDeviceInfo>& found, LoadedModel& model) {
  int64_t room = std::numeric_limits<int64_t>::max();
  const std::vector<int>& devices = model.cuda_devices;
  const int ranks = static_cast<int>(devices.size());
  for (int rank = 0; rank < ranks; ++rank) {
    spdlog::info("computing on CUDA device {}: {}", devices[rank], found[rank].description);
    const int64_t sharing = workers.all() * std::count(devices.begin(), devices.end(), devices[rank]);
    room = std::min(room, RoomForBlocks(model, {rank, ranks}, found[rank].free_bytes / sharing));
  }
  ASSIGN_OR_RETURN(const std::string apart, CudaDevicesApart(devices));
  if (!apart.empty()) {
    spdlog::warn(
        "tensor parallelism: CUDA devices {} do not reach each other's memory: sums over them go through the host's",
        apart);
  }
  ASSIGN_OR_RETURN(model.blocks, KvBlocksOnDevice(options, model.block_bytes, room));
  return absl::OkStatus();
}

// Those of the options, or of `auto`. UNAVAILABLE: they are not there. INVALID_ARGUMENT: they cannot run the model.
inline absl::Status FindDevices(const WorkerOptions& options, const ModelConfig& config, std::vector<int>& devices,
                                std::vector<CudaDeviceInfo>& found) {
  ASSIGN_OR_RETURN(devices, CudaDevices(options));
  if (devices.empty()) {
    ASSIGN_OR_RETURN(devices, EmptiestCudaDevices(options.tensor_parallel));
  }
  ASSIGN_OR_RETURN(found, FindCudaDevices(devices, config));
  return absl::OkStatus();
}

// Chooses where the model computes, and sizes the KV memory for one of the process's workers there.
inline absl::Status Place(WorkerOptions& options, const Workers& workers, LoadedModel& model) {
  const ModelConfig& config = model.weights->config;
  model.block_bytes = CpuKvLayout(config).BlockBytes();
  RETURN_IF_ERROR(CheckShard(config, options.tensor_parallel));
  if (options.device != "cpu") {
    std::vector<CudaDeviceInfo> found;
    const absl::Status status = FindDevices(options, config, model.cuda_devices, found);
    if (status.ok()) {
      SetSteps(options, workers, model);
      return SizeOnDevices(options, workers, found, model);
    }
    if (options.device != "auto") return status;
    model.cuda_devices.clear();
    // No GPU is as usual as one; one that is not taken is worth a word.
    const bool usual = absl::IsUnavailable(status) && options.tensor_parallel == 1;
    const auto level = usual ? spdlog::level::info : spdlog::level::warn;
    spdlog::log(level, "computing on the CPU: {}", std::string(status.message()));
  }
  SetSteps(options, workers, model);
  ASSIGN_OR_RETURN(model.blocks, KvBlocks(options, model.block_bytes));
  return absl::OkStatus();
}

// Afterwards the options say all.
inline absl::StatusOr<LoadedModel> LoadModel(WorkerOptions& options, const Workers& workers) {
  RETURN_IF_ERROR(Validate(options));
  LoadedModel model;
  ASSIGN_OR_RETURN(model.weights, LoadWeights(options.model));
  RETURN_IF_ERROR(Place(options, workers, model));
  if (model.cuda_devices.empty() && !options.guard_kv) WarnOfSharedMemory(model.blocks * model.block_bytes);
  ASSIGN_OR_RETURN(const StagingOptions staging, Staging(options, model.block_bytes));
  if (options.common.check && staging.disk > 0) {
    RETURN_IF_ERROR(StagingFile::Create(options.kv_disk_dir, staging.disk, model.block_bytes).status());
  }
  return model;
}

// Whose KV the worker goes on from: its prefill module's, or its own.
inline absl::StatusOr<Digest> KvDigest(const WorkerOptions& options, const LoadedModel& model,
                                       const Tokenizer& tokenizer) {
  if (options.prefill_module.empty()) return model.weights->digest;
  return PrefillModuleDigest(options.prefill_module, {model.weights->config, tokenizer});
}

using Transports = std::vector<std::unique_ptr<Transport>>;  // one for each rank

inline Transports MakeInProcessTransports(const WorkerOptions& options,
                                          const std::shared_ptr<InProcessNetwork>& network) {
  Transports transports;
  for (int i = 0; i < options.tensor_parallel; ++i) transports.push_back(std::make_unique<InProcessTransport>(network));
  return transports;
}

// How blocks reach other processes' workers. With --guard-kv they go by gRPC, so the slabs are nobody's but this
// process's own, and there is no UCX that writes wherever it is told to.
inline absl::StatusOr<Transports> MakeTransports(const WorkerOptions& options) {
  if (options.guard_kv) {
    spdlog::info("KV blocks move by gRPC, under keys of reservations");
    if (options.common.peer.empty()) {
      spdlog::warn(
          "--guard-kv without --peer-ca: whoever can call a decode worker can reserve blocks under a key of his own "
          "and commit to its cache what he likes");
    }
    return MakeInProcessTransports(options, std::make_shared<InProcessNetwork>());
  }
  Transports transports;
  for (int rank = 0; rank < options.tensor_parallel; ++rank) {
    ASSIGN_OR_RETURN(auto transport, UcxTransport::Create({.tcp_devices = options.kv_devices}));
    if (rank == 0) spdlog::info("KV blocks move by {}", transport->Description());
    transports.push_back(std::move(transport));
  }
  return transports;
}

// What computes, and how peers reach its KV, which lies in memory of the transports.
struct WorkerBackend {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Connector> connector;
};

inline absl::StatusOr<std::unique_ptr<Backend>> MakeCpuRanks(const LoadedModel& model, const CpuBackendOptions& options,
                                                             const Transports& transports) {
  const KvLayout layout = CpuKvLayout(model.weights->config);
  const int ranks = static_cast<int>(transports.size());
  std::vector<std::span<std::byte>> slabs;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t bytes = model.blocks * BlockBytesOf(layout, {rank, ranks});
    ASSIGN_OR_RETURN(slabs.emplace_back(), transports[rank]->AllocateSlab(bytes));
  }
  if (ranks > 1) return MakeCpuGroup(*model.weights, ranks, slabs, options);
  CpuBackendOptions alone = options;
  alone.slab = slabs[0];
  return MakeCpuBackend(*model.weights, alone);
}

// Afterwards the weights are not needed any more. The transports must outlive it.
inline absl::StatusOr<WorkerBackend> MakeBackend(const LoadedModel& model, const WorkerOptions& options, bool lm_head,
                                                 const Transports& transports) {
  WorkerBackend made;
  if (!model.cuda_devices.empty()) {
    const StepLimits step =
        lm_head ? StepLimits{model.step.logits, model.step.logits} : StepLimits{model.step.tokens, 0};
    const CudaWorkerOptions cuda{.devices = model.cuda_devices,
                                 .blocks = model.blocks,
                                 .step = step,
                                 .lm_head = lm_head,
                                 .same_bits = options.same_bits};
    ASSIGN_OR_RETURN(made.backend, MakeCudaWorkerBackend(*model.weights, cuda, transports));
  } else {
    const CpuBackendOptions cpu{.threads = Threads(options), .lm_head = lm_head};
    ASSIGN_OR_RETURN(made.backend, MakeCpuRanks(model, cpu, transports));
  }
  const KvLayout& layout = made.backend->kv_layout();
  const int ranks = static_cast<int>(transports.size());
  std::vector<StripedConnector::Part> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back({transports[rank].get(), StripeOf(layout, {rank, ranks})});
  }
  made.connector = std::make_unique<StripedConnector>(layout.PlaneBytes(), std::move(parts));
  return made;
}

// Samples the rows of a batch on the pool, which must outlive it.
inline ParallelFor SampleOn(ThreadPool& pool) {
  return [&pool](int64_t n, absl::FunctionRef<void(int64_t)> body) {
    pool.ParallelFor(n, 1, [&](Share share) { body(share.begin); });
  };
}

}  // namespace baton
