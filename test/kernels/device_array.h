// Typed device memory for tests and benches, filled from the host.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "base/check.h"

namespace baton::cuda {

// Aborts on an error, because test code cannot recover from a failed CUDA call.
inline void Must(cudaError_t status) { BATON_CHECK(status == cudaSuccess, cudaGetErrorString(status)); }

// An array on the device. Copies share its memory, so closures of a KernelCase can hold it.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(size_t size) : size_(size) {
    void* data = nullptr;
    Must(cudaMalloc(&data, size * sizeof(T)));
    data_ = std::shared_ptr<T>(static_cast<T*>(data), [](T* p) { cudaFree(p); });
    Poison();
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    Must(cudaMemcpy(data(), values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }

  T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  // Fills the array with ones, which are NaN in bf16 and fp32.
  void Poison() const { Must(cudaMemset(data(), 0xff, size_ * sizeof(T))); }
  std::vector<T> ToHost() const {
    std::vector<T> values(size_);
    Must(cudaDeviceSynchronize());
    Must(cudaMemcpy(values.data(), data(), size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::shared_ptr<T> data_;
  size_t size_ = 0;
};

}  // namespace baton::cuda
