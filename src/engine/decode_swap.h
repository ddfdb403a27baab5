// Moves the blocks of preempted requests between slab and host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/decode_engine.h"

namespace baton {

// Does the step's copies out, then its copies in. Where there is no host memory, `host` stays null and the engine fails
// the request.
void CopySwaps(const DecodeStep& step, std::span<std::byte> slab, int64_t block_bytes);

}  // namespace baton
