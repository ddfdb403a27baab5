// Checks and joins of the copies of a push. Every transport applies them before it moves a byte.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "transport/transport.h"

namespace baton {

// Returns INVALID_ARGUMENT unless every copy lies within [0, source_bytes) and [0, target_bytes)
// and moves at least one byte. The target offsets come from a peer's answers and are not trusted.
absl::Status CheckCopies(std::span<const BlockCopy> copies, int64_t source_bytes, int64_t target_bytes);

// Returns the same copies in the same order. A copy that continues the previous copy on both sides
// is joined to it.
std::vector<BlockCopy> Coalesce(std::span<const BlockCopy> copies);
// Returns the number of copies that Coalesce returns.
int64_t CountRuns(std::span<const BlockCopy> copies);

}  // namespace baton
