#include "kv/block_digest.h"

#include "base/sha256.h"
#include "base/status.h"
#include "kv/plane_copy.h"

namespace baton {
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
