#include "kv/block_digest.h"

#include <openssl/evp.h>

#include "base/status.h"

namespace baton {
namespace {

BlockDigest Sha256(const std::byte* data, size_t bytes) {
  // Looked up once: EVP_sha256() would make every digest search for its implementation.
  static const EVP_MD* const kSha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  BlockDigest digest;
  unsigned int written = 0;
  const int ok = EVP_Digest(data, bytes, digest.data(), &written, kSha256, nullptr);
  BATON_CHECK(ok == 1 && written == digest.size(), "OpenSSL gave no SHA-256");
  return digest;
}

// A block in its own order. Of what ranks share more than a plane at once would come stripe after stripe
// (kv/striped_slab.h).
absl::Status CopyBlock(const Slab& slab, const KvLayout& layout, BlockId block, std::byte* to) {
  const int64_t step = slab.device() != nullptr ? layout.BlockBytes() : layout.PlaneBytes();
  const std::byte* from = slab.data() + block.value() * layout.BlockBytes();
  std::vector<MemoryCopy> copies;
  for (int64_t done = 0; done < layout.BlockBytes(); done += step) {
    copies.push_back({to + done, from + done, static_cast<size_t>(step)});
  }
  return slab.Copy(copies);
}

}  // namespace

absl::StatusOr<std::vector<BlockDigest>> DigestsOf(const Slab& slab, const KvLayout& layout,
                                                   std::span<const BlockId> blocks) {
  const auto bytes = static_cast<size_t>(layout.BlockBytes());
  std::vector<std::byte> copy(slab.on_host() ? 0 : bytes);
  std::vector<BlockDigest> digests;
  digests.reserve(blocks.size());
  for (const BlockId block : blocks) {
    BATON_CHECK((block.value() + 1) * bytes <= slab.size(), "a block beyond the slab");
    if (!slab.on_host()) RETURN_IF_ERROR(CopyBlock(slab, layout, block, copy.data()));
    digests.push_back(Sha256(slab.on_host() ? slab.data() + block.value() * bytes : copy.data(), bytes));
  }
  return digests;
}

}  // namespace baton
