// A forecast of the copies between a worker's slab and host memory that a step begins with.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace baton {

// Returns a generous forecast of the time of such copies. It must not be too short, because routers
// take a worker for hung after a multiple of it, and a loaded machine copies slowly. It need not be
// measured, because it only bounds copies that never end.
inline absl::Duration CopyForecast(int64_t bytes) {
  constexpr absl::Duration kEachByte = absl::Nanoseconds(4);  // 250 MB/s
  return bytes * kEachByte;
}

}  // namespace baton
