// How much of max_new_tokens requests really use.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kv/block_layout.h"

namespace baton {

// The mean of (tokens made / max_new_tokens) over about the last 16 requests, at first 1/2: max_new_tokens is a limit
// that few reach, and preemption mends what was guessed too low. A request is expected to make this share of what it
// still may.
class GrowthEstimate {
 public:
  void Learn(int64_t made, int64_t max_new_tokens) {
    const double share = static_cast<double>(made) / static_cast<double>(std::max<int64_t>(1, max_new_tokens));
    share_ = std::clamp(share_ + (share - share_) / 16, 1.0 / 16, 1.0);
  }

  // Blocks to come for a sequence that fills `blocks` blocks with `kv_tokens` and may still make `max_new_tokens`; at
  // least the one that its next token may need.
  int64_t Blocks(int64_t kv_tokens, int64_t max_new_tokens, int64_t blocks) const {
    const auto expected = static_cast<int64_t>(std::ceil(share_ * static_cast<double>(max_new_tokens)));
    return std::max<int64_t>(0, BlocksFor(kv_tokens + std::max<int64_t>(1, expected)) - blocks);
  }
  double share() const { return share_; }

 private:
  double share_ = 0.5;
};

}  // namespace baton
