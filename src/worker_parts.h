// The concrete parts that the programs' mains have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/thread_pool.h"
#include "base/check.h"
#include "base/logging.h"
#include "base/status.h"
#include "engine/decode_worker.h"
#include "engine/staging_file.h"
#include "gpu_parts.h"
#include "model/prefill_module.h"
#include "model/weights.h"
#include "server/options.h"
#include "server/program.h"
#include "transport/transport.h"

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

// Chooses the device, and sizes the KV memory for one of `workers` of this process there.
inline absl::Status Place(const WorkerOptions& options, int workers, LoadedModel& model) {
  model.block_bytes = CpuKvLayout(model.weights->config).BlockBytes();
  if (const std::optional<int> device = CudaDeviceOf(options.device)) {
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

// A backend whose KV lies in memory of the transport. Afterwards the weights are not needed any more.
inline absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const LoadedModel& model, const WorkerOptions& options,
                                                            bool lm_head, Transport& transport) {
  if (model.cuda_device) {
    return MakeCudaWorkerBackend(
        *model.weights,
        {.device = *model.cuda_device, .blocks = model.blocks, .lm_head = lm_head, .same_bits = options.same_bits},
        transport);
  }
  ASSIGN_OR_RETURN(const std::span<std::byte> slab, transport.AllocateSlab(model.blocks * model.block_bytes));
  return MakeCpuBackend(*model.weights, {.threads = Threads(options), .slab = slab, .lm_head = lm_head});
}

// Samples the rows of a batch on the pool, which must outlive it.
inline ParallelFor SampleOn(ThreadPool& pool) {
  return [&pool](int64_t n, absl::FunctionRef<void(int64_t)> body) {
    pool.ParallelFor(n, 1, [&](Share share) { body(share.begin); });
  };
}

}  // namespace baton
