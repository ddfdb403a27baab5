// Owners of device memory, page-locked host memory and events.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "backend/cuda/cuda_status.h"
#include "base/status.h"

namespace baton {

// Memory on the device.
struct DeviceMemory {
  static constexpr const char* kName = "device memory";
  static cudaError_t Allocate(void** memory, size_t bytes) { return cudaMalloc(memory, bytes); }
  void operator()(void* memory) const { cudaFree(memory); }
};
// Page-locked memory on the host, which the device copies from and to without the processor.
struct PinnedMemory {
  static constexpr const char* kName = "page-locked memory";
  static cudaError_t Allocate(void** memory, size_t bytes) { return cudaMallocHost(memory, bytes); }
  void operator()(void* memory) const { cudaFreeHost(memory); }
};

// An array in one kind of memory. It grows and never shrinks, and growth discards its contents.
// Freeing device memory waits for all work that may use it. The caller must wait before
// page-locked memory is freed.
template <typename T, typename Memory>
class CudaBuffer {
 public:
  // Makes space for `count` elements. The message of RESOURCE_EXHAUSTED names `what`.
  absl::Status Reserve(int64_t count, absl::string_view what) {
    if (count <= capacity_) return absl::OkStatus();
    memory_.reset();
    capacity_ = 0;
    void* memory = nullptr;
    const auto bytes = static_cast<size_t>(count) * sizeof(T);
    const cudaError_t error = Memory::Allocate(&memory, bytes);
    if (error != cudaSuccess) return CudaStatus(error, absl::StrCat(bytes, " bytes of ", Memory::kName, " for ", what));
    memory_.reset(static_cast<T*>(memory));
    capacity_ = count;
    return absl::OkStatus();
  }
  // Does what Reserve does. If memory grows, the stream also sets it to zero.
  absl::Status ReserveZeroed(int64_t count, absl::string_view what, cudaStream_t stream) {
    if (count <= capacity_) return absl::OkStatus();
    RETURN_IF_ERROR(Reserve(count, what));
    const absl::Status zeroed =
        CudaStatus(cudaMemsetAsync(data(), 0, static_cast<size_t>(count) * sizeof(T), stream), what);
    // Frees the memory, because the next call would otherwise assume that it is zero.
    if (!zeroed.ok()) *this = {};
    return zeroed;
  }
  T* data() const { return memory_.get(); }
  int64_t capacity() const { return capacity_; }

 private:
  std::unique_ptr<T, Memory> memory_;
  int64_t capacity_ = 0;
};

template <typename T>
using DeviceBuffer = CudaBuffer<T, DeviceMemory>;
template <typename T>
using PinnedBuffer = CudaBuffer<T, PinnedMemory>;

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using CudaEvent = std::unique_ptr<CUevent_st, DestroyEvent>;

// Creates an event of the current device, without timing.
inline absl::StatusOr<CudaEvent> MakeEvent() {
  cudaEvent_t event = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event"));
  return CudaEvent(event);
}

}  // namespace baton
