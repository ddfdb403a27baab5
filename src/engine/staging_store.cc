#include "engine/staging_store.h"

#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<std::unique_ptr<StagingStore>> StagingStore::Create(int64_t host_blocks, int64_t block_bytes) {
  const auto bytes = static_cast<size_t>(host_blocks) * static_cast<size_t>(block_bytes);
  std::unique_ptr<std::byte[]> host(new (std::nothrow) std::byte[bytes]);
  if (host == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", host_blocks, " staged KV blocks of ", block_bytes, " bytes"));
  }
  return std::unique_ptr<StagingStore>(new StagingStore(std::move(host), block_bytes));
}

void StagingStore::Copy(const StagedCopies& copies, std::span<std::byte> slab) {
  for (const StagedCopy& copy : copies.out) {
    std::memcpy(HostSlot(copy.slot).data(), &slab[copy.block.value() * block_bytes_], block_bytes_);
  }
  for (const StagedCopy& copy : copies.in) {
    std::memcpy(&slab[copy.block.value() * block_bytes_], HostSlot(copy.slot).data(), block_bytes_);
  }
}

}  // namespace baton
