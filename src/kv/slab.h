// The memory that a worker's KV blocks are in.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "base/check.h"

namespace baton {

// Does not own the memory. Where it is a device's, its addresses mean nothing to the host, which copies by Copy alone.
class Slab {
 public:
  // Copies `bytes` between the slab and host memory or within the slab; done when it returns. From any thread.
  using CopyBytes = absl::Status (*)(void* to, const void* from, size_t bytes);

  Slab() = default;
  // The host's memory.
  Slab(std::span<std::byte> memory) : memory_(memory) {}  // NOLINT(google-explicit-constructor)
  // A device's.
  Slab(std::span<std::byte> memory, CopyBytes copy) : memory_(memory), copy_(copy) {}

  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }
  Slab First(size_t bytes) const { return {memory_.first(bytes), copy_}; }
  bool on_host() const { return copy_ == nullptr; }
  // REQUIRES: on_host.
  std::span<std::byte> host() const {
    BATON_CHECK(on_host(), "the host reads a device's memory");
    return memory_;
  }

  absl::Status Copy(void* to, const void* from, size_t bytes) const {
    if (!on_host()) return copy_(to, from, bytes);
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }

 private:
  std::span<std::byte> memory_;
  CopyBytes copy_ = nullptr;  // null: memcpy
};

}  // namespace baton
