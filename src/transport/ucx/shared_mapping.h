// Is memory that a peer says it shares with us really there?
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"

namespace baton {

// INVALID_ARGUMENT unless `memory` lies within one shared mapping of this process, and its last byte can be read: a
// mapping may be longer than the file behind it, and a touch beyond that ends the process. Linux: /proc/self/maps.
absl::Status CheckSharedMapping(std::span<const std::byte> memory);

}  // namespace baton
