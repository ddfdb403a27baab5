// A backend that computes a model on one CUDA device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backend/cuda/device_communicator.h"
#include "base/ids.h"
#include "model/weights.h"

namespace baton {

struct CudaBackendOptions {
  int device = 0;
  // A slab on the device, a multiple of BlockBytes(). Must outlive the backend.
  Slab slab = {};
  // Memory for steps of this size is allocated at the start. A larger step allocates more when it
  // comes.
  StepLimits step = {};
  // False for a prefill worker, which never computes logits.
  bool lm_head = true;
  // Ids that are never sampled: their logits are -inf (model/unnamed_ids.h).
  std::vector<TokenId> unnamed = {};
  // Bit-equal results for any chunking and any batch (design idea 5), as far as CudaMatmul's test
  // of each product can verify. bench/results/README.md states the price.
  bool same_bits = false;
  // Makes the backend a rank of a tensor-parallel group, with the rank's part of the weights
  // (ShardWeights). Only the first rank has logits, and they are those of the whole vocabulary.
  // Must outlive the backend. Null if there is no group.
  DeviceCommunicator* communicator = nullptr;
};

// The layout of KV blocks on CUDA devices: bf16, with K and V in rows (KvOrder::kRows).
KvLayout CudaKvLayout(const ModelConfig& config);

// Returns the device's name, memory and compute capability as text for logs and `--check`.
// UNAVAILABLE: no such device or no driver.
absl::StatusOr<std::string> DescribeCudaDevice(int device);

// UNAVAILABLE: there is no such device, its compute capability is below 8.0, or cuBLASLt is
// missing.
absl::Status CheckCudaDevice(int device);

// Returns the bytes of the device's memory that no process has allocated.
absl::StatusOr<int64_t> FreeCudaBytes(int device);

// Returns the `count` devices with most free memory among those that CheckCudaDevice accepts, in
// ascending order of their numbers. UNAVAILABLE: there are fewer devices.
absl::StatusOr<std::vector<int>> EmptiestDevices(int count);

// Returns the bytes of device memory that a backend allocates for steps up to `step`. `part` is the
// model, or a rank's part of it.
int64_t ActivationBytes(const ModelConfig& part, const StepLimits& step);

// INVALID_ARGUMENT: the kernels cannot compute a model of this shape.
absl::Status CheckCudaShape(const ModelConfig& config);

// Copies the weights to the device. The caller may free them afterwards.
//
// - UNAVAILABLE: CheckCudaDevice refuses the device.
// - INVALID_ARGUMENT: the slab is host memory or has a wrong size, or CheckCudaShape refuses the
//   model, for example weights other than bf16. The message names the expected and the given value.
// - RESOURCE_EXHAUSTED: out of device memory.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const Weights& weights, const CudaBackendOptions& options);

}  // namespace baton
