// What the host tells the device for a step: lists that are gathered in pinned memory and sent by one copy, since each
// copy costs the host more than its bytes do.
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

// Lists lie one after another, in the order in which they are added. A list's place on the device is the same in each
// upload if the lists before it have the same room, unless the memory grows: captured graphs rely on it.
class UploadBuffer {
 public:
  // Of one list in it, of T.
  template <typename T>
  class List {
   public:
    // On the device. Valid until the upload after the next Clear.
    T* data() const { return buffer_ == nullptr ? nullptr : reinterpret_cast<T*>(buffer_->device_.data() + offset_); }
    int64_t size() const { return size_; }

   private:
    friend class UploadBuffer;
    const UploadBuffer* buffer_ = nullptr;
    int64_t offset_ = 0, size_ = 0;
  };

  // Begins the next upload. The last one that was sent may be on its way, for the copy reads the host's side when the
  // stream reaches it: there are two. REQUIRES: the stream has passed the one before that.
  void Clear() {
    used_ = 0;
    if (std::exchange(sent_, false)) side_ ^= 1;
  }

  // A place for `size` values, which the caller writes before the next call. With a larger `room` what follows lies as
  // if there were so many; they are not written.
  template <typename T>
  absl::StatusOr<std::span<T>> Place(int64_t size, List<T>& list, int64_t room = 0) {
    const int64_t begin = (used_ + kAlignment - 1) / kAlignment * kAlignment;
    const int64_t end = begin + std::max(size, room) * static_cast<int64_t>(sizeof(T));
    RETURN_IF_ERROR(ReserveHost(end));
    used_ = end;
    list.buffer_ = this;
    list.offset_ = begin;
    list.size_ = size;
    return std::span(reinterpret_cast<T*>(hosts_[side_].data() + begin), static_cast<size_t>(size));
  }

  template <typename T>
  absl::Status Add(std::span<const T> values, List<T>& list, int64_t room = 0) {
    ASSIGN_OR_RETURN(const std::span<T> place, Place(static_cast<int64_t>(values.size()), list, room));
    std::copy(values.begin(), values.end(), place.begin());
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
  static constexpr int64_t kLeastBytes = 1 << 20;  // so that it hardly ever grows

  absl::Status ReserveHost(int64_t bytes) {
    PinnedBuffer<std::byte>& host = hosts_[side_];
    if (bytes <= host.capacity()) return absl::OkStatus();
    PinnedBuffer<std::byte> larger;
    RETURN_IF_ERROR(larger.Reserve(std::max(2 * bytes, kLeastBytes), "what a step uploads"));
    if (used_ > 0) std::memcpy(larger.data(), host.data(), static_cast<size_t>(used_));
    host = std::move(larger);
    return absl::OkStatus();
  }

  PinnedBuffer<std::byte> hosts_[2];
  int side_ = 0;       // of them, the present upload's
  bool sent_ = false;  // the present upload
  DeviceBuffer<std::byte> device_;
  int64_t used_ = 0;  // bytes
};

template <typename T>
using UploadedList = UploadBuffer::List<T>;

}  // namespace baton
