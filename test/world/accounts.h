// What a world's blocks must add up to at its end.
#pragma once

#include "kv/block_pool.h"

namespace baton {

// Whether no block of a pool is referenced or quarantined.
inline bool AllBlocksBack(const BlockPool::Counts& counts) { return counts.free + counts.cached == counts.total; }

}  // namespace baton
