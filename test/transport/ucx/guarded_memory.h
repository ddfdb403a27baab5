// Memory that faults when the host accesses it, like a device's memory. Only its SlabDevice can
// access it.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "kv/slab.h"

namespace baton {

class GuardedMemory {
 public:
  // With `shared`, other transports can map the memory.
  GuardedMemory(size_t bytes, bool shared) : bytes_(bytes), shared_(shared) {
    const int file = memfd_create("guarded", 0);
    BATON_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0, "memfd");
    guarded_ = Map(PROT_NONE, file);
    open_ = Map(PROT_READ | PROT_WRITE, file);
    close(file);
    const std::lock_guard lock(Registry().mutex);
    Registry().all.push_back(this);
  }
  ~GuardedMemory() {
    const std::lock_guard lock(Registry().mutex);
    std::erase(Registry().all, this);
    munmap(guarded_, bytes_);
    munmap(open_, bytes_);
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  Slab slab() const { return {{guarded_, bytes_}, &TheDevice()}; }
  // The same bytes at an address that the test may access.
  std::byte* open() const { return open_; }
  // Number of current mappings by other transports.
  static std::atomic<int>& mapped() {
    static std::atomic<int> count = 0;
    return count;
  }
  // If valid, CopyRuns waits for it, like a device that hangs. Set while no CopyRuns runs.
  static std::shared_future<void>& gate() {
    static std::shared_future<void> gate;
    return gate;
  }

 private:
  struct All {
    std::mutex mutex;
    std::vector<GuardedMemory*> all;
  };
  static All& Registry() {
    static All registry;
    return registry;
  }

  // A mapping within this process has the memory's own address. The handle is that address.
  class Device final : public SlabDevice {
   public:
    absl::Status Copy(std::span<const MemoryCopy> copies) const override {
      for (const MemoryCopy& copy : copies) std::memcpy(Open(copy.to), Open(copy.from), copy.bytes);
      return absl::OkStatus();
    }
    absl::StatusOr<HostMemory> AllocateHost(size_t bytes) const override { return HostMemory(new std::byte[bytes]); }
    absl::Status CopyRuns(std::byte* to, const std::byte* from, std::span<const BlockCopy> runs) const override {
      if (gate().valid()) gate().wait();
      for (const BlockCopy& run : runs) {
        std::memcpy(Open(to + run.target_offset), Open(from + run.source_offset), static_cast<size_t>(run.bytes));
      }
      return absl::OkStatus();
    }
    absl::StatusOr<std::string> Share(std::byte* memory) const override {
      if (!Find(memory)->shared_) return absl::UnavailableError("not shared");
      return std::string(reinterpret_cast<const char*>(&memory), sizeof memory);
    }
    absl::StatusOr<std::span<std::byte>> Map(std::string_view shared) const override {
      std::byte* memory = nullptr;
      if (shared.size() != sizeof memory) return absl::InvalidArgumentError("not a handle");
      std::memcpy(&memory, shared.data(), sizeof memory);
      const GuardedMemory* found = Find(memory);
      if (found == nullptr) return absl::NotFoundError("no such memory");
      ++mapped();
      return std::span(found->guarded_, found->bytes_);
    }
    void Unmap(std::byte*) const override { --mapped(); }
  };
  static const Device& TheDevice() {
    static const Device device;
    return device;
  }
  static GuardedMemory* Find(const std::byte* at) {
    const std::lock_guard lock(Registry().mutex);
    for (GuardedMemory* memory : Registry().all) {
      if (at >= memory->guarded_ && at < memory->guarded_ + memory->bytes_) return memory;
    }
    return nullptr;
  }
  static std::byte* Open(const void* address) {
    auto* at = static_cast<std::byte*>(const_cast<void*>(address));
    const GuardedMemory* memory = Find(at);
    return memory == nullptr ? at : memory->open_ + (at - memory->guarded_);
  }

  std::byte* Map(int protection, int file) const {
    void* memory = mmap(nullptr, bytes_, protection, MAP_SHARED, file, 0);
    BATON_CHECK(memory != MAP_FAILED, "mmap");
    return static_cast<std::byte*>(memory);
  }
  const size_t bytes_;
  const bool shared_;
  std::byte* guarded_;
  std::byte* open_;
};

}  // namespace baton
