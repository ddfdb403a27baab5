#include "kv/block_digest.h"

#include <openssl/evp.h>

#include "base/status.h"
#include "kv/plane_copy.h"

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

}  // namespace

absl::StatusOr<std::vector<BlockDigest>> DigestsOf(const Slab& slab, const KvLayout& layout,
                                                   std::span<const BlockId> blocks) {
  const auto bytes = static_cast<size_t>(layout.BlockBytes());
  std::vector<std::byte> copy(slab.on_host() ? 0 : bytes);
  std::vector<BlockDigest> digests;
  digests.reserve(blocks.size());
  for (const BlockId block : blocks) {
    BATON_CHECK((block.value() + 1) * bytes <= slab.size(), "a block beyond the slab");
    if (!slab.on_host()) {
      std::vector<MemoryCopy> planes;
      AddPlanes(slab, layout.PlaneBytes(), copy.data(), slab.data() + block.value() * bytes, layout.BlockBytes(),
                planes);
      RETURN_IF_ERROR(slab.Copy(planes));
    }
    digests.push_back(Sha256(slab.on_host() ? slab.data() + block.value() * bytes : copy.data(), bytes));
  }
  return digests;
}

}  // namespace baton
