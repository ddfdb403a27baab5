// The priorities that a request may have.
#pragma once

#include <cstdint>

namespace baton {

inline constexpr int32_t kMaxPriority = 1000;  // of clients: [-kMaxPriority, kMaxPriority]
// Below all priorities of clients. A low-priority job runs only when nothing else can, and may starve.
inline constexpr int32_t kBackgroundPriority = -kMaxPriority - 1;
inline bool IsBackground(int32_t priority) { return priority <= kBackgroundPriority; }

}  // namespace baton
