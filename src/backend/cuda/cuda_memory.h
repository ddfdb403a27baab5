// Device memory and page-locked host memory that free themselves.
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

// Elements in one kind of memory; grows and never shrinks. What it held is lost when it grows.
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

// A list that the host makes and the device reads. Upload at most once between two waits for the stream: the copy reads
// the host's side when the stream reaches it.
template <typename T>
class UploadedList {
 public:
  absl::Status Upload(std::span<const T> values, absl::string_view what, cudaStream_t stream) {
    const auto count = static_cast<int64_t>(values.size());
    size_ = count;
    if (count == 0) return absl::OkStatus();
    if (count > device_.capacity()) {
      const int64_t room = 2 * count;  // so that a growing batch does not allocate at every step
      RETURN_IF_ERROR(host_.Reserve(room, what));
      RETURN_IF_ERROR(device_.Reserve(room, what));  // last: it says whether there is room
    }
    std::copy(values.begin(), values.end(), host_.data());
    return CudaStatus(
        cudaMemcpyAsync(device_.data(), host_.data(), values.size_bytes(), cudaMemcpyHostToDevice, stream), what);
  }
  T* data() const { return device_.data(); }
  int64_t size() const { return size_; }

 private:
  DeviceBuffer<T> device_;
  PinnedBuffer<T> host_;
  int64_t size_ = 0;
};

}  // namespace baton
