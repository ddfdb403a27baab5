// The memory that a worker's KV blocks are in.
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

// One contiguous copy; offsets in bytes from the start of each side's slab.
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

// Of the host.
using HostMemory = std::shared_ptr<std::byte[]>;

// How the host reads and writes memory that it cannot by itself. Calls may come from any thread.
class SlabAccess {
 public:
  virtual ~SlabAccess() = default;
  // Copies between this memory and the host's; all are done when it returns. Several cost less than one by one.
  virtual absl::Status Copy(std::span<const MemoryCopy> copies) const = 0;
  // From where and to where copies are fastest, for what is copied often: it takes long to make.
  // RESOURCE_EXHAUSTED: so much cannot be had.
  virtual absl::StatusOr<HostMemory> AllocateHost(size_t bytes) const = 0;
};

// A device with memory of its own. Copy also copies within it.
class SlabDevice : public SlabAccess {
 public:
  // Copies all runs from slab to slab, both the device's.
  virtual absl::Status CopyRuns(std::byte* to, const std::byte* from, std::span<const BlockCopy> runs) const = 0;
  // What another process of this host maps `memory` by, which is a whole allocation. UNAVAILABLE: it cannot.
  virtual absl::StatusOr<std::string> Share(std::byte* memory) const = 0;
  // All of what another process shares; an error, nothing worse, where `shared` is not from Share. Until Unmap.
  virtual absl::StatusOr<std::span<std::byte>> Map(std::string_view shared) const = 0;
  virtual void Unmap(std::byte* mapped) const = 0;
};

// Does not own the memory.
class Slab {
 public:
  Slab() = default;
  // The host's memory.
  Slab(std::span<std::byte> memory) : memory_(memory) {}  // NOLINT(google-explicit-constructor)
  // A device's; null: the host's.
  Slab(std::span<std::byte> memory, const SlabDevice* device) : memory_(memory), access_(device), device_(device) {}
  // Addresses that only `access` knows how to use.
  Slab(std::span<std::byte> memory, const SlabAccess* access) : memory_(memory), access_(access) {}

  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }
  Slab First(size_t bytes) const {
    Slab first = *this;
    first.memory_ = memory_.first(bytes);
    return first;
  }
  const SlabDevice* device() const { return device_; }  // null: it is not one device's
  bool on_host() const { return access_ == nullptr; }
  // REQUIRES: on_host.
  std::span<std::byte> host() const {
    BATON_CHECK(on_host(), "the host reads memory that is not its own");
    return memory_;
  }

  // As SlabAccess does.
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
  const SlabAccess* access_ = nullptr;  // must outlive it
  const SlabDevice* device_ = nullptr;  // as which access_ is known
};

}  // namespace baton
