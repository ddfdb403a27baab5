// What every transport does to a push before it moves a byte.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "transport/transport.h"

namespace baton {

// INVALID_ARGUMENT unless every copy lies within [0, source_bytes) and [0, target_bytes) and moves at least one byte.
// Target offsets come from a peer's answers.
absl::Status CheckCopies(std::span<const BlockCopy> copies, int64_t source_bytes, int64_t target_bytes);

// The same copies in the same order, where each that continues the one before it on both sides is joined to it.
std::vector<BlockCopy> Coalesce(std::span<const BlockCopy> copies);
// How many these are.
int64_t CountRuns(std::span<const BlockCopy> copies);

}  // namespace baton
