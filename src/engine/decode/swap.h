// Copies of the blocks of preempted requests between the slab and host memory.
#pragma once

#include <cstdint>

#include "engine/decode/engine.h"
#include "kv/slab.h"

namespace baton {

// Returns the number of bytes that CopySwaps copies.
int64_t SwappedBytes(const DecodeStep& step, int64_t block_bytes);

// Runs the step's copies out, and then its copies in. If there is no host memory for a copy out,
// leaves `host` null. FinishStep of the engine then fails the request. Returns the error of
// Slab::Copy.
absl::Status CopySwaps(const DecodeStep& step, const Slab& slab, int64_t block_bytes);

}  // namespace baton
