// An estimate of the share of max_new_tokens that requests use.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kv/block_layout.h"

namespace baton {

// The mean of tokens made / max_new_tokens over about the last 16 requests, at first 1/2. A request
// is expected to make this share of the tokens that it may still make. max_new_tokens is a limit
// that few requests reach. Preemption corrects an estimate that is too low.
class GrowthEstimate {
 public:
  void Learn(int64_t made, int64_t max_new_tokens) {
    const double share = static_cast<double>(made) / static_cast<double>(std::max<int64_t>(1, max_new_tokens));
    share_ = std::clamp(share_ + (share - share_) / 16, 1.0 / 16, 1.0);
  }

  // Returns how many blocks a sequence is expected to need beyond its `blocks` blocks. It has KV of
  // `kv_tokens` tokens and may still make `max_new_tokens`. The result includes at least the block
  // that its next token may need.
  int64_t Blocks(int64_t kv_tokens, int64_t max_new_tokens, int64_t blocks) const {
    const auto expected = static_cast<int64_t>(std::ceil(share_ * static_cast<double>(max_new_tokens)));
    return std::max<int64_t>(0, BlocksFor(kv_tokens + std::max<int64_t>(1, expected)) - blocks);
  }
  double share() const { return share_; }

 private:
  double share_ = 0.5;
};

}  // namespace baton
