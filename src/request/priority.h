// The priorities of requests.
#pragma once

#include <cstdint>

namespace baton {

// Clients choose a priority in [-kMaxPriority, kMaxPriority]. A higher priority runs first.
inline constexpr int32_t kMaxPriority = 1000;
// The priority of low-priority jobs, below all priorities of clients. A low-priority job runs only
// when nothing else can run, so it may starve.
inline constexpr int32_t kBackgroundPriority = -kMaxPriority - 1;
inline bool IsBackground(int32_t priority) { return priority <= kBackgroundPriority; }

}  // namespace baton
