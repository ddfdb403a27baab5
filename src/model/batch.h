// One step's work: a ragged batch of (new tokens, paged history). Prefill, increments and decode are all this.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/sample_spec.h"

namespace baton {

// One sequence's share of a step. Positions [0, start) are already in the blocks; this step writes [start, start + n).
struct SequenceSlice {
  std::span<const TokenId> tokens;  // [n], n >= 1
  int32_t start = 0;                // position of tokens[0]
  std::span<const BlockId> blocks;  // block table: position p lives in blocks[p / 16]; covers [0, start + n)
  bool wants_logits = false;        // of the last token only
  // With wants_logits: a backend that can may choose the token itself instead of giving logits, see
  // LogitsView::sampled. Null: it must give them.
  const SampleSpec* sample = nullptr;
};

// Blocks of different slices may be the same for reading: a slice may attend to positions that another slice of the
// same batch writes, since each layer stores all K/V before attention reads (design idea 4). No position is written
// twice.
struct Batch {
  std::vector<SequenceSlice> slices;
  // These slices are the ones that the pass before was told of (Meanwhile::foresee), but for their tokens and what
  // these change of the samples: where that step's slice had a sample, and there alone, its successor has one.
  bool foreseen = false;
};

}  // namespace baton
