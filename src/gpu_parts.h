// What a worker on a CUDA device is made of. In a build without CUDA the same functions say so.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "model/weights.h"
#include "transport/transport.h"

namespace baton {

struct CudaDeviceInfo {
  std::string description;  // name, memory, compute capability
  int64_t free_bytes = 0;
};

// UNAVAILABLE: there is no such device, or this build has no CUDA. INVALID_ARGUMENT: it cannot run such a model.
absl::StatusOr<CudaDeviceInfo> FindCudaDevice(int device, const ModelConfig& config);

// So many devices, those with most free memory, by number. UNAVAILABLE: there are fewer, or this build has no CUDA.
absl::StatusOr<std::vector<int>> EmptiestCudaDevices(int count);

// Which of the devices do not reach each other's memory, in words; empty: all do. Errors as above.
absl::StatusOr<std::string> CudaDevicesApart(std::span<const int> devices);

// What activations of such a step take on the device of a rank with this part of a model.
int64_t CudaActivationBytes(const ModelConfig& part, const StepLimits& step);

// A slab in device memory that the transport keeps; of `bytes`.
absl::StatusOr<Slab> AdoptCudaSlab(int device, int64_t bytes, Transport& transport);

struct CudaWorkerOptions {
  std::vector<int> devices;  // one for each rank
  int64_t blocks = 0;        // of the whole model
  StepLimits step;           // device memory for it is taken at the start
  bool lm_head = true;
  bool same_bits = false;
};

// A backend whose KV lies in such slabs, one in the transport of each rank.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaWorkerBackend(const Weights& weights, const CudaWorkerOptions& options,
                                                               std::span<const std::unique_ptr<Transport>> transports);

}  // namespace baton
