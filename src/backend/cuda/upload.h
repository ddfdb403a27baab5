// An upload of lists from the host to the device. The lists are gathered in page-locked memory
// and sent with one copy, because each copy costs the host more than its bytes do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/cuda/cuda_memory.h"
#include "base/status.h"

namespace baton {

// The lists of one upload lie one after another, in the order in which they are added. If the lists
// before a list take the same space in each upload, the list has the same address on the device
// each time, unless the memory grows. Captured graphs rely on this. Not thread-safe.
class UploadBuffer {
 public:
  // One list of T in an upload.
  template <typename T>
  class List {
   public:
    // The address on the device. Valid until the Send after the next Clear.
    T* data() const { return buffer_ == nullptr ? nullptr : reinterpret_cast<T*>(buffer_->device_.data() + offset_); }
    int64_t size() const { return size_; }

   private:
    friend class UploadBuffer;
    const UploadBuffer* buffer_ = nullptr;
    int64_t offset_ = 0, size_ = 0;
  };

  // Begins the next upload. There are two host buffers, so the previous upload may still run.
  // REQUIRES: the stream has completed the upload before the previous one.
  void Clear() {
    used_ = 0;
    if (std::exchange(sent_, false)) side_ ^= 1;
  }

  // Reserves space for `size` values, and returns it. The caller writes the values before the next
  // call. If `room` is larger than `size`, the list takes the space of `room` values, so that later
  // lists keep their addresses. The rest is not written.
  template <typename T>
  absl::StatusOr<std::span<T>> Reserve(int64_t size, List<T>& list, int64_t room = 0) {
    const int64_t begin = (used_ + kAlignment - 1) / kAlignment * kAlignment;
    const int64_t end = begin + std::max(size, room) * static_cast<int64_t>(sizeof(T));
    RETURN_IF_ERROR(ReserveHost(end));
    used_ = end;
    list.buffer_ = this;
    list.offset_ = begin;
    list.size_ = size;
    return std::span(reinterpret_cast<T*>(hosts_[side_].data() + begin), static_cast<size_t>(size));
  }

  // Adds a copy of `values`. `room` is as for Reserve.
  template <typename T>
  absl::Status Add(std::span<const T> values, List<T>& list, int64_t room = 0) {
    ASSIGN_OR_RETURN(const std::span<T> space, Reserve(static_cast<int64_t>(values.size()), list, room));
    std::copy(values.begin(), values.end(), space.begin());
    return absl::OkStatus();
  }

  // Enqueues the copy. `what` names the lists in errors.
  absl::Status Send(absl::string_view what, cudaStream_t stream) {
    if (used_ == 0) return absl::OkStatus();
    sent_ = true;
    if (used_ > device_.capacity()) RETURN_IF_ERROR(device_.Reserve(std::max(2 * used_, kLeastBytes), what));
    return CudaStatus(cudaMemcpyAsync(device_.data(), hosts_[side_].data(), static_cast<size_t>(used_),
                                      cudaMemcpyHostToDevice, stream),
                      what);
  }

 private:
  static constexpr int64_t kAlignment = 256;       // of each list, in bytes
  static constexpr int64_t kLeastBytes = 1 << 20;  // large, so that it hardly ever grows

  absl::Status ReserveHost(int64_t bytes) {
    PinnedBuffer<std::byte>& host = hosts_[side_];
    if (bytes <= host.capacity()) return absl::OkStatus();
    PinnedBuffer<std::byte> larger;
    RETURN_IF_ERROR(larger.Reserve(std::max(2 * bytes, kLeastBytes), "a step's upload"));
    if (used_ > 0) std::memcpy(larger.data(), host.data(), static_cast<size_t>(used_));
    host = std::move(larger);
    return absl::OkStatus();
  }

  PinnedBuffer<std::byte> hosts_[2];
  // The index in hosts_ of the present upload.
  int side_ = 0;
  bool sent_ = false;  // whether the present upload is sent
  DeviceBuffer<std::byte> device_;
  int64_t used_ = 0;  // bytes
};

template <typename T>
using UploadedList = UploadBuffer::List<T>;

}  // namespace baton
