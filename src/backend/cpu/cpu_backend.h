// A backend that computes a model on CPU threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backend/communicator.h"
#include "base/ids.h"
#include "model/weights.h"

namespace baton {

struct CpuBackendOptions {
  int threads = 1;
  // Memory for KV blocks, a multiple of BlockBytes(), which must outlive the backend. If empty, the
  // backend allocates memory for `kv_blocks` blocks.
  std::span<std::byte> slab = {};
  int64_t kv_blocks = 0;
  // False for a prefill worker, which never computes logits.
  bool lm_head = true;
  // Ids that are never sampled: their logits are -inf (model/unnamed_ids.h).
  std::vector<TokenId> unnamed = {};
  // Makes the backend a rank of a tensor-parallel group, with the rank's part of the weights
  // (ShardWeights). Only rank 0 has logits, and they are those of the whole vocabulary. Must
  // outlive the backend. Null if there is no group.
  Communicator* communicator = nullptr;
  // Name of a kernel table. If empty, the fastest table that this machine can run.
  std::string kernels = {};
};

// The layout of KV blocks on CPUs: fp32 for fp32 models, else bf16.
KvLayout CpuKvLayout(const ModelConfig& config);

// Packs the weights, which the caller may free afterwards. Returns INVALID_ARGUMENT for an option
// or a shape that the kernels cannot compute, such as odd dimensions. The message names the
// expected and the given value. RESOURCE_EXHAUSTED: out of memory.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const Weights& weights, const CpuBackendOptions& options);

}  // namespace baton
