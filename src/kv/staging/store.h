// The memory and the file that KvStaging's slots are in.
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

// One thread may copy while others transfer: KvStaging sees to it that no two use one slot at once, unless both read
// it.
class StagingStore {
 public:
  // Of blocks of `slab`. `directory`: of the disk's file, if there is a disk. RESOURCE_EXHAUSTED: so much memory cannot
  // be had; else as StagingFile::Create.
  static absl::StatusOr<std::unique_ptr<StagingStore>> Create(const StagingOptions& blocks, int64_t block_bytes,
                                                              const Slab& slab, const std::string& directory = "");

  // Does a step's copies, out and then in. An error is the slab's.
  absl::Status Copy(const StagedCopies& copies);
  // Takes as long as the disk does. DATA_LOSS: as StagingFile::Read.
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
