// The concrete parts that the programs' mains have in common.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/thread_pool.h"
#include "base/status.h"
#include "engine/decode_worker.h"
#include "engine/staging_file.h"
#include "model/prefill_module.h"
#include "model/weights.h"
#include "server/options.h"
#include "transport/transport.h"

namespace baton {

// A model's weights, checked, and how many blocks of KV the options give it.
struct LoadedModel {
  std::unique_ptr<Weights> weights;
  int64_t blocks = 0;
  int64_t block_bytes = 0;
};

inline absl::StatusOr<LoadedModel> LoadModel(const WorkerOptions& options) {
  RETURN_IF_ERROR(Validate(options));
  LoadedModel model;
  ASSIGN_OR_RETURN(model.weights, LoadWeights(options.model));
  model.block_bytes = CpuKvLayout(model.weights->config).BlockBytes();
  ASSIGN_OR_RETURN(model.blocks, KvBlocks(options, model.block_bytes));
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
