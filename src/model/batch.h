// One step's work: a ragged batch of (new tokens, paged history). Prefill, increments and decode are all this.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/sample_spec.h"

namespace baton {

inline constexpr int32_t kFollowsNone = -1;

// One sequence's share of a step. Positions [0, start) are already in the blocks; this step writes [start, start + n).
struct SequenceSlice {
  std::span<const TokenId> tokens;  // [n], n >= 1
  int32_t start = 0;                // position of tokens[0]
  std::span<const BlockId> blocks;  // block table: position p lives in blocks[p / 16]; covers [0, start + n)
  bool wants_logits = false;        // of the last token only
  // With wants_logits: a backend that can may choose the token itself instead of giving logits, see
  // LogitsView::sampled. Null: it must give them.
  const SampleSpec* sample = nullptr;
  // In a step that begins before the one before is over (Meanwhile::next): the slice of that one whose choice is this
  // one's token, in place of the only one of `tokens`; where `sample` has seen tokens, it is one more of them.
  int32_t follows = kFollowsNone;
};

// Blocks of different slices may be the same for reading: a slice may attend to positions that another slice of the
// same batch writes, since each layer stores all K/V before attention reads (design idea 4). No position is written
// twice.
struct Batch {
  std::vector<SequenceSlice> slices;
  bool begun = false;  // Meanwhile::next gave it, and it is under way (LogitsView::next_begun)
};

}  // namespace baton
