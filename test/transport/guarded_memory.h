// Memory that faults when the host touches it, as a device's would be worse than useless to it: only CopyBytes reaches
// it.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "kv/slab.h"

namespace baton {

class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes) : bytes_(bytes) {
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

  Slab slab() const { return {{guarded_, bytes_}, &CopyBytes}; }
  // The same bytes, for the test.
  std::byte* open() const { return open_; }

 private:
  struct All {
    std::mutex mutex;
    std::vector<GuardedMemory*> all;
  };
  static All& Registry() {
    static All registry;
    return registry;
  }

  std::byte* Map(int protection, int file) const {
    void* memory = mmap(nullptr, bytes_, protection, MAP_SHARED, file, 0);
    BATON_CHECK(memory != MAP_FAILED, "mmap");
    return static_cast<std::byte*>(memory);
  }
  static std::byte* Open(const void* address) {
    auto* at = static_cast<std::byte*>(const_cast<void*>(address));
    const std::lock_guard lock(Registry().mutex);
    for (const GuardedMemory* memory : Registry().all) {
      if (at >= memory->guarded_ && at < memory->guarded_ + memory->bytes_)
        return memory->open_ + (at - memory->guarded_);
    }
    return at;
  }
  static absl::Status CopyBytes(void* to, const void* from, size_t bytes) {
    std::memcpy(Open(to), Open(from), bytes);
    return absl::OkStatus();
  }

  const size_t bytes_;
  std::byte* guarded_;
  std::byte* open_;
};

}  // namespace baton
