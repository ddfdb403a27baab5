#include "kv/staging/store.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace baton {

absl::StatusOr<std::unique_ptr<StagingStore>> StagingStore::Create(const StagingOptions& blocks, int64_t block_bytes,
                                                                   const Slab& slab, const std::string& directory) {
  auto host = slab.AllocateHost(static_cast<size_t>(blocks.host) * static_cast<size_t>(block_bytes));
  if (!host.ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("kv-host-mb: ", blocks.host, " blocks of ", block_bytes, " bytes: ", host.status().message()));
  }
  std::unique_ptr<StagingStore> store(new StagingStore(slab, *std::move(host), block_bytes));
  if (blocks.disk > 0) {
    ASSIGN_OR_RETURN(store->file_, StagingFile::Create(directory, blocks.disk, block_bytes));
  }
  return store;
}

absl::Status StagingStore::Transfer(const DiskTransfer& transfer) {
  const std::span<std::byte> host = HostSlot(transfer.host_slot);
  return transfer.read ? file_->Read(transfer.disk_slot, host) : file_->Write(transfer.disk_slot, host);
}

absl::Status StagingStore::Copy(const StagedCopies& copies) {
  const auto block = [&](BlockId id) { return slab_.data() + id.value() * block_bytes_; };
  std::vector<MemoryCopy> list;
  for (const StagedCopy& copy : copies.out) {
    list.push_back({HostSlot(copy.slot).data(), block(copy.block), block_bytes_});
  }
  RETURN_IF_ERROR(slab_.Copy(list));
  list.clear();
  for (const StagedCopy& copy : copies.in) {
    list.push_back({block(copy.block), HostSlot(copy.slot).data(), block_bytes_});
  }
  return slab_.Copy(list);
}

}  // namespace baton
