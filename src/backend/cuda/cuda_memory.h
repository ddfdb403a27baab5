// Device memory, page-locked host memory and events that free themselves.
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

// On the device.
struct DeviceMemory {
  static constexpr const char* kName = "device memory";
  static cudaError_t Allocate(void** memory, size_t bytes) { return cudaMalloc(memory, bytes); }
  void operator()(void* memory) const { cudaFree(memory); }
};
// On the host, where the device copies from and to by itself.
struct PinnedMemory {
  static constexpr const char* kName = "pinned memory";
  static cudaError_t Allocate(void** memory, size_t bytes) { return cudaMallocHost(memory, bytes); }
  void operator()(void* memory) const { cudaFreeHost(memory); }
};

// Elements in one kind of memory; grows and never shrinks. What it held is lost when it grows. Freeing the device's
// memory waits for all that may use it; of the host's, the caller does.
template <typename T, typename Memory>
class CudaBuffer {
 public:
  // `what` names it in the error: RESOURCE_EXHAUSTED.
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
  // And it is zero when the stream gets there, if it grew.
  absl::Status ReserveZeroed(int64_t count, absl::string_view what, cudaStream_t stream) {
    if (count <= capacity_) return absl::OkStatus();
    RETURN_IF_ERROR(Reserve(count, what));
    const absl::Status zeroed =
        CudaStatus(cudaMemsetAsync(data(), 0, static_cast<size_t>(count) * sizeof(T), stream), what);
    if (!zeroed.ok()) *this = {};  // else it would be taken to be zero the next time
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

// Of the current device, without times.
inline absl::StatusOr<CudaEvent> MakeEvent() {
  cudaEvent_t event = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event"));
  return CudaEvent(event);
}

}  // namespace baton
