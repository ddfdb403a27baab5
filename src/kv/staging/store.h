// The memory and the file that contain the slots of KvStaging.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kv/slab.h"
#include "kv/staging/file.h"
#include "kv/staging/staging.h"

namespace baton {

// The storage of both tiers. One thread may call Copy while others call Transfer. KvStaging ensures
// that two calls use the same slot only if both read it.
class StagingStore {
 public:
  // Allocates slots for blocks of `slab`. `directory` contains the file, if there is a disk. Fails
  // with RESOURCE_EXHAUSTED if there is too little memory, or as StagingFile::Create does.
  static absl::StatusOr<std::unique_ptr<StagingStore>> Create(const StagingOptions& blocks, int64_t block_bytes,
                                                              const Slab& slab, const std::string& directory = "");

  // Makes the copies of a step, first those out of the slab, then those into it. Fails as
  // Slab::Copy does.
  absl::Status Copy(const StagedCopies& copies);
  // Makes one transfer, and blocks until the disk has finished it. Fails as StagingFile::Read or
  // Write does.
  absl::Status Transfer(const DiskTransfer& transfer);
  std::span<std::byte> HostSlot(int64_t slot) {
    return {&host_[slot * static_cast<std::ptrdiff_t>(block_bytes_)], block_bytes_};
  }

 private:
  StagingStore(const Slab& slab, HostMemory host, int64_t block_bytes)
      : slab_(slab), host_(std::move(host)), block_bytes_(static_cast<size_t>(block_bytes)) {}

  const Slab slab_;
  const HostMemory host_;  // [host_blocks * block_bytes]
  const size_t block_bytes_;
  std::unique_ptr<StagingFile> file_;  // null: no disk
};

}  // namespace baton
