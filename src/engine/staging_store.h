// The memory that KvStaging's slots are in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kv/staging.h"

namespace baton {

// Not thread-safe.
class StagingStore {
 public:
  // RESOURCE_EXHAUSTED: so much memory cannot be had.
  static absl::StatusOr<std::unique_ptr<StagingStore>> Create(int64_t host_blocks, int64_t block_bytes);

  // Does a step's copies, out and then in.
  void Copy(const StagedCopies& copies, std::span<std::byte> slab);
  std::span<std::byte> HostSlot(int64_t slot) {
    return {&host_[static_cast<size_t>(slot) * block_bytes_], block_bytes_};
  }

 private:
  StagingStore(std::unique_ptr<std::byte[]> host, int64_t block_bytes)
      : host_(std::move(host)), block_bytes_(static_cast<size_t>(block_bytes)) {}

  std::unique_ptr<std::byte[]> host_;  // [host_blocks * block_bytes]
  const size_t block_bytes_;
};

}  // namespace baton
