// A model on one CUDA device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backend/cuda/device_communicator.h"
#include "model/weights.h"

namespace baton {

struct CudaBackendOptions {
  int device = 0;
  Slab slab = {};        // of the device, a multiple of BlockBytes(); must outlive the backend
  StepLimits step = {};  // memory for it is taken at the start; larger ones take more when they come
  bool lm_head = true;   // false: a prefill worker, which never makes logits
  // Bit-equal results for any chunking and batch (design idea 5), at the price that bench/results/README.md states.
  bool same_bits = false;
  // The backend is this rank of a tensor-parallel group, and the weights are its part (ShardWeights); logits are whole,
  // the first rank's alone. Null: there is no group. Must outlive the backend.
  DeviceCommunicator* communicator = nullptr;
};

// Bf16, K and V row by row.
KvLayout CudaKvLayout(const ModelConfig& config);

// The device's name, memory and compute capability in words, for logs and `--check`. UNAVAILABLE: there is none.
absl::StatusOr<std::string> DescribeCudaDevice(int device);

// UNAVAILABLE: it is not there, is older than the kernels, or cuBLASLt is not.
absl::Status CheckCudaDevice(int device);

// Of the device that nobody has taken.
absl::StatusOr<int64_t> FreeCudaBytes(int device);

// So many devices, of those that CheckCudaDevice accepts the ones with most free memory, by number. UNAVAILABLE: there
// are fewer.
absl::StatusOr<std::vector<int>> EmptiestDevices(int count);

// Of device memory that a backend takes for `step`; `part` of the model is a rank's.
int64_t ActivationBytes(const ModelConfig& part, const StepLimits& step);

// INVALID_ARGUMENT: the kernels cannot take it.
absl::Status CheckCudaShape(const ModelConfig& config);

// Copies the weights to the device; they may be dropped afterwards. UNAVAILABLE: no such device. INVALID_ARGUMENT:
// options, or a shape that the kernels cannot take (weights other than bf16, a head_dim other than 64 and 128), with
// what was expected and got. RESOURCE_EXHAUSTED: device memory.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const Weights& weights, const CudaBackendOptions& options);

}  // namespace baton
