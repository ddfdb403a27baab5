// The concrete parts that the programs' mains have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_group.h"
#include "backend/cpu/thread_pool.h"
#include "backend/tensor_parallel.h"
#include "base/check.h"
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

// A model's weights, checked, where it will compute, and how many blocks of KV the options give it there.
struct LoadedModel {
  std::unique_ptr<Weights> weights;
  std::optional<int> cuda_device;  // none: the CPU
  int64_t blocks = 0;
  int64_t block_bytes = 0;
};

inline int64_t WeightBytes(const Weights& weights) {
  int64_t elements = 2 * weights.embedding.rows * weights.embedding.cols;  // the LM head too
  for (const LayerWeights& layer : weights.layers) {
    for (const Tensor& t : {layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down}) {
      elements += t.rows * t.cols;
    }
  }
  return elements * BytesPerElement(weights.config.dtype);
}

// Of `--device`, which is valid. None: the CPU.
inline std::optional<int> CudaDeviceOf(const std::string& device) {
  if (device == "cpu") return std::nullopt;
  int number = 0;
  if (device.starts_with("cuda:")) BATON_CHECK(absl::SimpleAtoi(device.substr(5), &number), device);
  return number;
}

// Ranks are for CPUs so far: `auto` takes no GPU then.
inline absl::Status CheckRanks(const WorkerOptions& options, const ModelConfig& config) {
  if (options.tensor_parallel > 1 && options.device.starts_with("cuda")) {
    return absl::InvalidArgumentError(absl::StrCat("tensor-parallel: expected 1 with --device ", options.device,
                                                   ": ranks on GPUs are not built yet, got ", options.tensor_parallel));
  }
  return CheckShard(config, options.tensor_parallel);
}

// Chooses the device, and sizes the KV memory for one of `workers` of this process there.
inline absl::Status Place(const WorkerOptions& options, int workers, LoadedModel& model) {
  model.block_bytes = CpuKvLayout(model.weights->config).BlockBytes();
  RETURN_IF_ERROR(CheckRanks(options, model.weights->config));
  const std::optional<int> device = options.tensor_parallel > 1 ? std::nullopt : CudaDeviceOf(options.device);
  if (device) {
    const auto info = FindCudaDevice(*device, model.weights->config);
    if (!info.ok() && options.device != "auto") return info.status();
    if (info.ok()) {
      spdlog::info("computing on CUDA device {}: {}", *device, info->description);
      model.cuda_device = device;
      ASSIGN_OR_RETURN(model.blocks, KvBlocksOnDevice(options, model.block_bytes, info->free_bytes / workers,
                                                      WeightBytes(*model.weights)));
      return absl::OkStatus();
    }
    // No GPU is as usual as one; one that is not taken is worth a word.
    const auto level = absl::IsUnavailable(info.status()) ? spdlog::level::info : spdlog::level::warn;
    spdlog::log(level, "computing on the CPU: {}", std::string(info.status().message()));
  }
  ASSIGN_OR_RETURN(model.blocks, KvBlocks(options, model.block_bytes));
  return absl::OkStatus();
}

inline absl::StatusOr<LoadedModel> LoadModel(const WorkerOptions& options, int workers = 1) {
  RETURN_IF_ERROR(Validate(options));
  LoadedModel model;
  ASSIGN_OR_RETURN(model.weights, LoadWeights(options.model));
  RETURN_IF_ERROR(Place(options, workers, model));
  if (!model.cuda_device) WarnOfSharedMemory(model.blocks * model.block_bytes);
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

inline absl::StatusOr<Transports> MakeUcxTransports(const WorkerOptions& options) {
  Transports transports;
  for (int rank = 0; rank < options.tensor_parallel; ++rank) {
    ASSIGN_OR_RETURN(auto transport, UcxTransport::Create({.tcp_devices = options.kv_devices}));
    if (rank == 0) spdlog::info("KV blocks move by {}", transport->Description());
    transports.push_back(std::move(transport));
  }
  return transports;
}

inline Transports MakeInProcessTransports(const WorkerOptions& options,
                                          const std::shared_ptr<InProcessNetwork>& network) {
  Transports transports;
  for (int i = 0; i < options.tensor_parallel; ++i) transports.push_back(std::make_unique<InProcessTransport>(network));
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
    const int64_t bytes = model.blocks * layout.planes() * StripeOf(layout, {rank, ranks}).width();
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
  if (model.cuda_device) {
    const CudaWorkerOptions cuda{
        .device = *model.cuda_device, .blocks = model.blocks, .lm_head = lm_head, .same_bits = options.same_bits};
    ASSIGN_OR_RETURN(made.backend, MakeCudaWorkerBackend(*model.weights, cuda, *transports[0]));
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
