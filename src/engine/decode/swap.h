// Moves the blocks of preempted requests between slab and host memory.
#pragma once

#include <cstdint>

#include "engine/decode/engine.h"
#include "kv/slab.h"

namespace baton {

// Does the step's copies out, then its copies in. Where there is no host memory, `host` stays null and the engine fails
// the request. An error is the slab's.
absl::Status CopySwaps(const DecodeStep& step, const Slab& slab, int64_t block_bytes);

}  // namespace baton
