// The plan of where decode attention cuts the histories of a batch. The host makes it for each
// step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/paged_kv.h"

namespace baton::cuda {

// The distance between two cuts of a history is kMinSplitKeys or a multiple of it, so that no
// history has more than kMaxSplits splits. The last split of a history that is cut is longer than
// half of the distance, and at most 1.5 times as long as the distance.
inline constexpr int32_t kMinSplitKeys = 256;
inline constexpr int32_t kMaxSplits = 32;

// One split, a part of a history: keys [begin, end) of a slice.
struct alignas(32) HistorySplit {
  int32_t slice = -1;  // -1: padding
  int32_t begin = 0;
  int32_t end = 0;
  // Index of its result in the workspace. -1 for a whole history, which needs no workspace.
  int32_t partial = -1;
  // Index among the splits of its history, [0, splits).
  int32_t place = 0;
  int32_t splits = 1;
};

// The CTAs that run at once. CTA i takes the pairs of a split and a KV head with the numbers i, i +
// ctas, ...
struct DecodeGrid {
  int32_t kv_heads = 1;
  int32_t ctas = 1;
};

// Cuts the histories of slices of one row each, and sorts the splits by decreasing number of
// blocks. The splits of one history have consecutive partials. Returns the number of partials.
// Keeps the vector's memory.
//
// The distance between cuts is the one with which the CTAs are expected to end soonest. Short
// splits share the work evenly, but each split has a fixed cost.
int32_t PlanHistorySplits(std::span<const AttentionSlice> slices, const DecodeGrid& grid,
                          std::vector<HistorySplit>& splits);

}  // namespace baton::cuda
