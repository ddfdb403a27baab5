#include "gpu_parts.h"

namespace baton {

absl::StatusOr<CudaDeviceInfo> FindCudaDevice(int, const ModelConfig&) {
  return absl::UnavailableError("this build has no CUDA (configure with the CUDA toolkit and -DBATON_CUDA=ON)");
}

absl::StatusOr<std::vector<int>> EmptiestCudaDevices(int) {
  return absl::UnavailableError("this build has no CUDA (configure with the CUDA toolkit and -DBATON_CUDA=ON)");
}

absl::StatusOr<std::string> CudaDevicesApart(std::span<const int>) {
  return absl::UnavailableError("this build has no CUDA");
}

int64_t CudaActivationBytes(const ModelConfig&, const StepLimits&) { return 0; }

absl::StatusOr<Slab> AdoptCudaSlab(int, int64_t, Transport&) {
  return absl::UnavailableError("this build has no CUDA");
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaWorkerBackend(const Weights&, const CudaWorkerOptions&,
                                                               std::span<const std::unique_ptr<Transport>>) {
  return absl::UnavailableError("this build has no CUDA");
}

}  // namespace baton
