#include "backend/cuda/cuda_slab.h"

#include "base/status.h"

namespace baton {
namespace {

// A stream of each thread's own, so that a copy waits for nothing else and nothing waits for it.
absl::Status CopyBytes(void* to, const void* from, size_t bytes) {
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamPerThread);
  return CudaStatus(error == cudaSuccess ? cudaStreamSynchronize(cudaStreamPerThread) : error, "copying KV blocks");
}

}  // namespace

absl::StatusOr<std::shared_ptr<CudaSlab>> CudaSlab::Allocate(int device, int64_t bytes) {
  if (bytes < 1) return absl::InvalidArgumentError(absl::StrCat("slab of ", bytes, " bytes"));
  RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device), absl::StrCat("device ", device)));
  auto slab = std::make_shared<CudaSlab>();
  RETURN_IF_ERROR(slab->memory_.Reserve(bytes, "KV blocks"));
  return slab;
}

Slab CudaSlab::slab() const { return {std::span(memory_.data(), static_cast<size_t>(memory_.capacity())), &CopyBytes}; }

}  // namespace baton
