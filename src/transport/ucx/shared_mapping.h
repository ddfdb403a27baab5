// A check of memory that a peer claims to share with this process.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"

namespace baton {

// Returns INVALID_ARGUMENT unless `memory` lies within one writable shared mapping of this process
// and its last byte can be read. A mapping may be longer than the file behind it, and an access
// beyond the end of the file kills the process. Uses /proc/self/maps of Linux.
absl::Status CheckSharedMapping(std::span<const std::byte> memory);

}  // namespace baton
