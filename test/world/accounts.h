// Checks that a world's blocks add up at its end.
#pragma once

#include "kv/block_pool.h"

namespace baton {

// Returns whether no block of a pool is referenced or quarantined.
inline bool AllBlocksBack(const BlockPool::Counts& counts) { return counts.free + counts.cached == counts.total; }

}  // namespace baton
