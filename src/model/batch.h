// The input of one forward pass: a ragged batch of sequences with paged history. Prefill, the
// increments of streaming prompts and decode all use it.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/sample_spec.h"

namespace baton {

// The value of SequenceSlice::follows for a slice whose tokens are given.
inline constexpr int32_t kFollowsNone = -1;

// One sequence's part of a step. The K/V of positions [0, start) is already in the blocks. The step
// writes positions [start, start + n).
struct SequenceSlice {
  std::span<const TokenId> tokens;  // [n], n >= 1
  int32_t start = 0;                // position of tokens[0]
  // The block table: position p lies in blocks[p / 16]. It covers [0, start + n).
  std::span<const BlockId> blocks;
  // Requests the logits of the last token.
  bool wants_logits = false;
  // Parameters for a backend that samples on the device, if wants_logits is set. Such a backend may
  // choose the token and return LogitsView::sampled instead of logits. If null, the backend must
  // return the logits.
  const SampleSpec* sample = nullptr;
  // The index of a slice of the previous step, or kFollowsNone. The row continues that slice's row:
  // a step that is enqueued before the previous step ends (Meanwhile::next) takes its token from
  // that slice's choice. The token replaces the single element of `tokens`. If sample->seen is not
  // empty, the token also counts as seen.
  int32_t follows = kFollowsNone;
  // With wants_logits, requests the logits of all tokens. REQUIRES: `sample` is null.
  bool all_logits = false;

  // The number of last tokens whose logits are requested. Each is a row of the pass's logits.
  int64_t logit_rows() const { return !wants_logits ? 0 : all_logits ? std::ssize(tokens) : 1; }
};

// The slices of one step. Slices may share blocks that they read. A slice may attend to positions
// that another slice of the same batch writes, because each layer stores all K/V before attention
// reads it (design idea 4). REQUIRES: no position is written twice.
struct Batch {
  std::vector<SequenceSlice> slices;
  // True if the batch came from Meanwhile::next and the backend has already enqueued its pass
  // (LogitsView::next_started).
  bool started = false;
};

}  // namespace baton
