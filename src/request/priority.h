// The priorities of requests.
#pragma once

#include <cstdint>

namespace baton {

// Clients choose a priority in [-kMaxPriority, kMaxPriority]. A priority orders the requests of one
// tenant only. Routers and prefill workers put a higher priority first; in every eighth prefill
// step, each tenant's oldest closed prompt comes before its other prompts (PromptQueue). A decode
// worker counts a level as 10 s of earlier arrival, up to 100 levels.
inline constexpr int32_t kMaxPriority = 1000;
// The priority of low-priority jobs, below all priorities of clients. In each prefill step,
// low-priority jobs come after all other prompts. They get the tokens that the other prompts leave,
// within the share of prompts that yield (`StreamingLimits::step_tokens`), so they may starve.
inline constexpr int32_t kLowPriority = -kMaxPriority - 1;
inline bool IsLowPriority(int32_t priority) { return priority <= kLowPriority; }

}  // namespace baton
