#include "node/worker_parts.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_group.h"
#include "backend/tensor_parallel.h"
#include "base/logging.h"
#include "base/status.h"
#include "gpu_parts.h"
#include "kv/staging/file.h"
#include "model/prefill_module.h"
#include "model/shard.h"
#include "node/program.h"
#include "transport/striped_connector.h"
#include "transport/ucx/transport.h"

namespace baton {
namespace {

// Bytes of the weights on a GPU; `head`: with the LM head.
int64_t WeightBytes(const Weights& weights, bool head) {
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

absl::StatusOr<std::vector<CudaDeviceInfo>> FindCudaDevices(const std::vector<int>& devices,
                                                            const ModelConfig& config) {
  std::vector<CudaDeviceInfo> found;
  for (const int device : devices) {
    ASSIGN_OR_RETURN(found.emplace_back(), FindCudaDevice(device, config));
  }
  return found;
}

// Bytes of the whole model's KV blocks for whose shard a rank's device has room beside its weights and activations.
int64_t RoomForBlocks(const LoadedModel& model, Shard shard, int64_t free_bytes) {
  const KvLayout layout = CpuKvLayout(model.weights->config);
  const auto part = ShardWeights(*model.weights, shard);
  const int64_t left =
      free_bytes - WeightBytes(*part, model.step.logits > 0) - CudaActivationBytes(part->config, model.step);
  const int64_t blocks = left / BlockBytesOf(layout, shard);
  return blocks * model.block_bytes;
}

// Sets the step limits that the options leave to the device.
void SetSteps(WorkerOptions& options, const Workers& workers, LoadedModel& model) {
  SetStepDefaults(options, !model.cuda_devices.empty());
  model.step.logits = workers.decode > 0 ? options.max_batch : 0;
  model.step.tokens = std::max(workers.prefill > 0 ? options.step_tokens : 0, model.step.logits);
}

// Sizes the KV memory by the rank that has the least room.
absl::Status SizeOnDevices(const WorkerOptions& options, const Workers& workers,
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

// The devices that the options name, or for `auto` the emptiest ones. UNAVAILABLE: they do not exist. INVALID_ARGUMENT:
// they cannot run the model.
absl::Status FindDevices(const WorkerOptions& options, const ModelConfig& config, std::vector<int>& devices,
                         std::vector<CudaDeviceInfo>& found) {
  ASSIGN_OR_RETURN(devices, CudaDevices(options));
  if (devices.empty()) {
    ASSIGN_OR_RETURN(devices, EmptiestCudaDevices(options.tensor_parallel));
  }
  ASSIGN_OR_RETURN(found, FindCudaDevices(devices, config));
  return absl::OkStatus();
}

// Chooses the device of the model, and sizes the KV memory of one worker of the process there.
absl::Status Place(WorkerOptions& options, const Workers& workers, LoadedModel& model) {
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
    // A machine without a GPU is common. A GPU that is present and not used deserves a warning.
    const bool usual = absl::IsUnavailable(status) && options.tensor_parallel == 1;
    const auto level = usual ? spdlog::level::info : spdlog::level::warn;
    spdlog::log(level, "computing on the CPU: {}", std::string(status.message()));
  }
  SetSteps(options, workers, model);
  ASSIGN_OR_RETURN(model.blocks, KvBlocks(options, model.block_bytes));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuRanks(const LoadedModel& model, const CpuBackendOptions& options,
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

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(WorkerOptions& options, const Workers& workers) {
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

absl::StatusOr<Digest> KvDigest(const WorkerOptions& options, const LoadedModel& model, const Tokenizer& tokenizer) {
  if (options.prefill_module.empty()) return model.weights->digest;
  return PrefillModuleDigest(options.prefill_module, {model.weights->config, tokenizer});
}

Transports MakeInProcessTransports(const WorkerOptions& options, const std::shared_ptr<InProcessNetwork>& network) {
  Transports transports;
  for (int i = 0; i < options.tensor_parallel; ++i) transports.push_back(std::make_unique<InProcessTransport>(network));
  return transports;
}

absl::StatusOr<Transports> MakeTransports(const WorkerOptions& options) {
  if (options.guard_kv) {
    spdlog::info("KV blocks move by gRPC, under keys of reservations");
    if (options.common.peer.empty()) {
      spdlog::warn(
          "--guard-kv without --peer-ca: any process that can call a decode worker can reserve blocks under a key of "
          "its "
          "own and commit any content to the cache");
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

absl::StatusOr<WorkerBackend> MakeBackend(const LoadedModel& model, const WorkerOptions& options, bool lm_head,
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

ParallelFor SampleOn(ThreadPool& pool) {
  return [&pool](int64_t n, absl::FunctionRef<void(int64_t)> body) {
    pool.ParallelFor(n, 1, [&](Share share) { body(share.begin); });
  };
}

}  // namespace baton
