#include "backend/cuda/cuda_slab.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "backend/cuda/upload.h"
#include "base/status.h"
#include "kernels/block_copy.h"

namespace baton {
namespace {

// Waits for the calling thread's own stream, on which this file enqueues all work. The copies of
// different threads therefore do not wait for each other or for steps.
absl::Status Wait(cudaError_t enqueued, absl::string_view what) {
  // Waits for all work on the stream, also if the last enqueue failed.
  const cudaError_t ended = cudaStreamSynchronize(cudaStreamPerThread);
  return CudaStatus(enqueued == cudaSuccess ? ended : enqueued, what);
}

// Returns the size of the allocation that contains `memory`.
absl::StatusOr<size_t> AllocatedBytes(void* memory) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  RETURN_IF_ERROR(
      CudaStatus(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 12000, cudaEnableDefault, &found),
                 "cuMemGetAddressRange"));
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const auto get_range = reinterpret_cast<decltype(&cuMemGetAddressRange)>(function);
  if (function == nullptr || get_range(&base, &bytes, reinterpret_cast<CUdeviceptr>(memory)) != CUDA_SUCCESS) {
    return absl::InternalError("CUDA: cannot get the size of mapped memory");
  }
  return bytes;
}

class CudaDevice final : public SlabDevice {
 public:
  explicit CudaDevice(int device) : device_(device) {}

  absl::Status Copy(std::span<const MemoryCopy> copies) const override {
    RETURN_IF_ERROR(Use());
    cudaError_t enqueued = cudaSuccess;
    for (const MemoryCopy& copy : copies) {
      enqueued = cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDefault, cudaStreamPerThread);
      if (enqueued != cudaSuccess) break;
    }
    return Wait(enqueued, "copying KV blocks");
  }

  // Page-locked, for all devices.
  absl::StatusOr<HostMemory> AllocateHost(size_t bytes) const override {
    RETURN_IF_ERROR(Use());
    void* memory = nullptr;
    RETURN_IF_ERROR(CudaStatus(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable),
                               absl::StrCat(bytes, " bytes of page-locked memory")));
    return HostMemory(static_cast<std::byte*>(memory), PinnedMemory());
  }

  absl::Status CopyRuns(std::byte* to, const std::byte* from, std::span<const BlockCopy> runs) const override {
    RETURN_IF_ERROR(Use());
    // Kept for the next call. Each call waits for its upload.
    thread_local std::map<int, UploadBuffer> upload_to;
    UploadBuffer& upload = upload_to[device_];
    std::vector<cuda::CopyRun> list;
    int64_t pieces = 0;
    for (const BlockCopy& run : runs) {
      if (run.bytes == 0) continue;
      list.push_back({.from = run.source_offset, .to = run.target_offset, .bytes = run.bytes, .first_piece = pieces});
      pieces += cuda::CopyPieces(run.bytes);
    }
    upload.Clear();
    UploadedList<cuda::CopyRun> uploaded;
    RETURN_IF_ERROR(upload.Add(std::span<const cuda::CopyRun>(list), uploaded));
    RETURN_IF_ERROR(upload.Send("pushing KV blocks", cudaStreamPerThread));
    return Wait(
        cuda::LaunchCopyRuns(from, uploaded.data(), static_cast<int32_t>(list.size()), pieces, to, cudaStreamPerThread),
        "pushing KV blocks");
  }

  absl::StatusOr<std::string> Share(std::byte* memory) const override {
    RETURN_IF_ERROR(Use());
    cudaIpcMemHandle_t handle;
    const cudaError_t error = cudaIpcGetMemHandle(&handle, memory);
    if (error != cudaSuccess) return absl::UnavailableError(CudaStatus(error, "cudaIpcGetMemHandle").message());
    return std::string(handle.reserved, sizeof handle.reserved);
  }

  absl::StatusOr<std::span<std::byte>> Map(std::string_view shared) const override {
    cudaIpcMemHandle_t handle;
    if (shared.size() != sizeof handle.reserved) {
      return absl::InvalidArgumentError(absl::StrCat("shared device memory: expected a handle of ",
                                                     sizeof handle.reserved, " bytes, got ", shared.size()));
    }
    std::memcpy(handle.reserved, shared.data(), shared.size());
    RETURN_IF_ERROR(Use());
    void* memory = nullptr;
    RETURN_IF_ERROR(CudaStatus(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
                               "mapping a peer's device memory"));
    const absl::StatusOr<size_t> bytes = AllocatedBytes(memory);
    if (!bytes.ok()) {
      cudaIpcCloseMemHandle(memory);
      return bytes.status();
    }
    return std::span(static_cast<std::byte*>(memory), *bytes);
  }

  void Unmap(std::byte* mapped) const override {
    if (Use().ok()) cudaIpcCloseMemHandle(mapped);
  }

 private:
  // Makes the device current for the calling thread. CUDA keeps the current device per thread.
  absl::Status Use() const { return CudaStatus(cudaSetDevice(device_), "device"); }

  const int device_;
};

// Returns the one object for each device. Slabs of one device have the same object, by which
// callers recognise the device.
const CudaDevice& DeviceNumber(int device) {
  static std::mutex mutex;
  static std::map<int, CudaDevice> devices;
  const std::lock_guard lock(mutex);
  return devices.try_emplace(device, device).first->second;
}

}  // namespace

absl::StatusOr<std::shared_ptr<CudaSlab>> CudaSlab::Allocate(int device, int64_t bytes) {
  if (bytes < 1) return absl::InvalidArgumentError(absl::StrCat("KV slab: expected at least 1 byte, got ", bytes));
  RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device), absl::StrCat("device ", device)));
  auto slab = std::make_shared<CudaSlab>();
  slab->device_ = &DeviceNumber(device);
  RETURN_IF_ERROR(slab->memory_.Reserve(bytes, "KV blocks"));
  return slab;
}

Slab CudaSlab::slab() const { return {std::span(memory_.data(), static_cast<size_t>(memory_.capacity())), device_}; }

}  // namespace baton
