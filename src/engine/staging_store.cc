#include "engine/staging_store.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace baton {

absl::StatusOr<std::unique_ptr<StagingStore>> StagingStore::Create(const StagingOptions& blocks, int64_t block_bytes,
                                                                   const std::string& directory) {
  const auto bytes = static_cast<size_t>(blocks.host) * static_cast<size_t>(block_bytes);
  std::unique_ptr<std::byte[]> host(new (std::nothrow) std::byte[bytes]);
  if (host == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", blocks.host, " staged KV blocks of ", block_bytes, " bytes"));
  }
  std::unique_ptr<StagingStore> store(new StagingStore(std::move(host), block_bytes));
  if (blocks.disk > 0) {
    ASSIGN_OR_RETURN(store->file_, StagingFile::Create(directory, blocks.disk, block_bytes));
  }
  return store;
}

absl::Status StagingStore::Transfer(const DiskTransfer& transfer) {
  const std::span<std::byte> host = HostSlot(transfer.host_slot);
  return transfer.read ? file_->Read(transfer.disk_slot, host) : file_->Write(transfer.disk_slot, host);
}

absl::Status StagingStore::Copy(const StagedCopies& copies, const Slab& slab) {
  for (const StagedCopy& copy : copies.out) {
    RETURN_IF_ERROR(
        slab.Copy(HostSlot(copy.slot).data(), slab.data() + copy.block.value() * block_bytes_, block_bytes_));
  }
  for (const StagedCopy& copy : copies.in) {
    RETURN_IF_ERROR(
        slab.Copy(slab.data() + copy.block.value() * block_bytes_, HostSlot(copy.slot).data(), block_bytes_));
  }
  return absl::OkStatus();
}

}  // namespace baton
