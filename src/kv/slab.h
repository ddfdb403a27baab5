// The memory of a worker's KV blocks. It belongs to the host, to a device, or to several devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {

// One contiguous copy between two slabs. The offsets are bytes from the start of each slab.
struct BlockCopy {
  int64_t source_offset = 0;
  int64_t target_offset = 0;
  int64_t bytes = 0;
};

struct MemoryCopy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

// Memory of the host.
using HostMemory = std::shared_ptr<std::byte[]>;

// Copies between the host and memory that the host cannot address. Thread-safe.
class SlabAccess {
 public:
  virtual ~SlabAccess() = default;
  // Copies between this memory and the host. All copies are complete when the call returns. One
  // call with many copies is faster than many calls.
  virtual absl::Status Copy(std::span<const MemoryCopy> copies) const = 0;
  // Allocates host memory for which Copy is fastest. The allocation is slow, so use it for memory
  // that is copied often. Fails with RESOURCE_EXHAUSTED if there is too little memory.
  virtual absl::StatusOr<HostMemory> AllocateHost(size_t bytes) const = 0;
};

// A device with its own memory. Copy also copies between two addresses in this memory.
class SlabDevice : public SlabAccess {
 public:
  // Copies all runs from slab `from` to slab `to`. Both are in this device's memory.
  virtual absl::Status CopyRuns(std::byte* to, const std::byte* from, std::span<const BlockCopy> runs) const = 0;
  // Returns a handle by which another process of this host can map `memory`. Fails with UNAVAILABLE
  // if the device cannot share it. REQUIRES: `memory` is the start of an allocation.
  virtual absl::StatusOr<std::string> Share(std::byte* memory) const = 0;
  // Maps the whole allocation of a handle from Share, until Unmap. If `shared` is not such a
  // handle, the call fails and has no other effect.
  virtual absl::StatusOr<std::span<std::byte>> Map(std::string_view shared) const = 0;
  virtual void Unmap(std::byte* mapped) const = 0;
};

// A view of a slab's memory. It does not own the memory.
class Slab {
 public:
  Slab() = default;
  // Memory of the host.
  Slab(std::span<std::byte> memory) : memory_(memory) {}  // NOLINT(google-explicit-constructor)
  // Memory of `device`, or of the host if `device` is null.
  Slab(std::span<std::byte> memory, const SlabDevice* device) : memory_(memory), access_(device), device_(device) {}
  // Addresses that only `access` can read and write.
  Slab(std::span<std::byte> memory, const SlabAccess* access) : memory_(memory), access_(access) {}

  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }
  Slab First(size_t bytes) const {
    Slab first = *this;
    first.memory_ = memory_.first(bytes);
    return first;
  }
  // Returns the device that has the memory, or null if it is the host or several devices.
  const SlabDevice* device() const { return device_; }
  bool on_host() const { return access_ == nullptr; }
  // REQUIRES: on_host.
  std::span<std::byte> host() const {
    BATON_CHECK(on_host(), "the slab is not in host memory");
    return memory_;
  }

  // These work as in SlabAccess, for memory of the host as well.
  absl::Status Copy(std::span<const MemoryCopy> copies) const {
    if (!on_host()) return access_->Copy(copies);
    for (const MemoryCopy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
    return absl::OkStatus();
  }
  absl::Status Copy(void* to, const void* from, size_t bytes) const {
    const MemoryCopy copy{to, from, bytes};
    return Copy({&copy, 1});
  }
  absl::StatusOr<HostMemory> AllocateHost(size_t bytes) const {
    if (!on_host()) return access_->AllocateHost(bytes);
    HostMemory memory(new (std::nothrow) std::byte[bytes]);
    if (memory == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
    return memory;
  }

 private:
  std::span<std::byte> memory_;
  const SlabAccess* access_ = nullptr;  // null: the host
  const SlabDevice* device_ = nullptr;  // access_, if that is a single device
};

}  // namespace baton
