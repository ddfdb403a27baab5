// What the bytes of KV blocks are, in 32 bytes that nobody can find other bytes for.
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

// Of each block, in order, as it would lie in one slab, however many ranks share it. What the host cannot read is
// copied, a block at a time. An error: the slab's device failed.
absl::StatusOr<std::vector<BlockDigest>> DigestsOf(const Slab& slab, const KvLayout& layout,
                                                   std::span<const BlockId> blocks);

}  // namespace baton
