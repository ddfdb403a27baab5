// Where decode attention cuts the histories of a batch: planned on the host, for each step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/paged_kv.h"

namespace baton::cuda {

// Histories are cut every so many keys, or every multiple of it by which none has more than kMaxSplits parts. The last
// part has up to half of that more, so that none is shorter than half.
inline constexpr int32_t kMinSplitKeys = 256;
inline constexpr int32_t kMaxSplits = 32;

// Keys [begin, end) of a slice.
struct alignas(32) HistorySplit {
  int32_t slice = -1;  // -1: padding
  int32_t begin = 0;
  int32_t end = 0;
  int32_t partial = -1;  // where in the workspace its result goes; -1: it is the whole history and needs none
  int32_t place = 0;     // [0, splits) in its history
  int32_t splits = 1;
};

// What runs at once: each CTA takes every so manieth pair of a split and a KV head.
struct DecodeGrid {
  int32_t kv_heads = 1;
  int32_t ctas = 1;
};

// The splits of slices of one row each, longest first (in blocks); the splits of one slice have partials one after
// another. How long they are is what lets the CTAs end soonest: short ones share the work evenly, each costs a little
// besides. Returns how many partials there are. Keeps the vector's memory.
int32_t PlanHistorySplits(std::span<const AttentionSlice> slices, const DecodeGrid& grid,
                          std::vector<HistorySplit>& splits);

}  // namespace baton::cuda
