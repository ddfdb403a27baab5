// A model on CPU threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backend/communicator.h"
#include "model/weights.h"

namespace baton {

struct CpuBackendOptions {
  int threads = 1;
  // Memory for KV blocks, which must outlive the backend and be a multiple of BlockBytes(). Empty: the backend has its
  // own, of `kv_blocks`.
  std::span<std::byte> slab = {};
  int64_t kv_blocks = 0;
  bool lm_head = true;  // false: a prefill worker, which never makes logits
  // The backend is this rank of a tensor-parallel group, and the weights are its part (ShardWeights); logits are whole,
  // at rank 0 alone. Must outlive it. Null: it is alone.
  Communicator* communicator = nullptr;
  std::string kernels = {};  // name of a kernel table; empty: the fastest that this machine can run
};

// Bf16 for bf16 models, fp32 for fp32 ones.
KvLayout CpuKvLayout(const ModelConfig& config);

// Packs the weights, which may be dropped afterwards. INVALID_ARGUMENT: options, or a shape that the kernels cannot
// take (odd dimensions), with what was expected and got.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const Weights& weights, const CpuBackendOptions& options);

}  // namespace baton
