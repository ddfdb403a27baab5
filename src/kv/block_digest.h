// Cryptographic digests of the bytes of KV blocks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "kv/block_layout.h"
#include "kv/slab.h"

namespace baton {

using BlockDigest = std::array<uint8_t, 32>;  // SHA-256

// Returns the digest of each block, in order. The digest covers the block's bytes in the layout of
// one whole slab, so it does not depend on the number of ranks. Memory that the host cannot read is
// copied to the host, one block at a time. Fails if the slab's device fails.
absl::StatusOr<std::vector<BlockDigest>> DigestsOf(const Slab& slab, const KvLayout& layout,
                                                   std::span<const BlockId> blocks);

}  // namespace baton
