#include "kernels/history_splits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace baton::cuda {
namespace {

// Lengths, in blocks, that are counted separately. Splits are sorted by counting, because this runs
// in every step. Longer splits count as equal.
constexpr int32_t kLengths = 8192 / kBlockTokens;

int32_t LengthOf(int32_t keys) { return std::min((keys - 1) / kBlockTokens, kLengths - 1); }

// The cuts of one history. All splits but the last have `step` keys.
struct Cut {
  int32_t step, splits, last;
};

// `least` is a power of two, because divisions take most of the time.
Cut CutOf(int32_t keys, int32_t least) {
  const int shift = std::countr_zero(static_cast<uint32_t>(least));
  const int32_t multiple = (keys - 1) / kMaxSplits >> shift;
  const int32_t step = least * (multiple + 1);
  const int32_t rounded = keys + step / 2 - 1;
  const int32_t splits = std::max(1, multiple == 0 ? rounded >> shift : rounded / step);
  return {step, splits, keys - (splits - 1) * step};
}

// The number of splits of each length.
using Counts = std::array<int32_t, kLengths>;

Counts CountSplits(std::span<const AttentionSlice> slices, int32_t least) {
  Counts counts{};
  // Splits of `least` keys. Nearly all splits have this length, so they are counted in a register.
  int32_t shortest = 0;
  for (const AttentionSlice& slice : slices) {
    const Cut cut = CutOf(slice.start + 1, least);
    (cut.step == least ? shortest : counts[LengthOf(cut.step)]) += cut.splits - 1;
    ++counts[LengthOf(cut.last)];
  }
  counts[LengthOf(least)] += shortest;
  return counts;
}

// Returns the time until all CTAs have ended. CTA 0 ends last, because it has the longest unit of
// every round. The unit of time is that of one key.
int64_t KeysUntilDone(const Counts& counts, const DecodeGrid& grid) {
  // Fixed cost of a unit. Measured on an H200, with splits of 256 keys against splits of 1,024.
  constexpr int64_t kUnitKeys = 24;
  // The units of the lengths so far.
  int64_t keys = 0, units = 0;
  int64_t rounds = 0;
  for (int32_t length = kLengths - 1; length >= 0; --length) {
    if (counts[length] == 0) continue;
    units += int64_t{counts[length]} * grid.kv_heads;
    const int64_t until = (units + grid.ctas - 1) / grid.ctas;
    keys += (until - rounds) * ((length + 1) * kBlockTokens + kUnitKeys);
    rounds = until;
  }
  return keys;
}

// Writes the splits, longest first.
int32_t PlaceSplits(std::span<const AttentionSlice> slices, int32_t least, const Counts& counts,
                    std::vector<HistorySplit>& splits) {
  // The index of the next split of each length.
  Counts places;
  int32_t total = 0;
  for (int32_t length = kLengths - 1; length >= 0; --length) {
    places[length] = total;
    total += counts[length];
  }
  splits.resize(static_cast<size_t>(total));
  int32_t partials = 0;
  for (int32_t slice = 0; slice < std::ssize(slices); ++slice) {
    const Cut cut = CutOf(slices[slice].start + 1, least);
    for (int32_t place = 0, begin = 0; place < cut.splits; ++place, begin += cut.step) {
      const int32_t keys = place == cut.splits - 1 ? cut.last : cut.step;
      const int32_t partial = cut.splits > 1 ? partials++ : -1;
      splits[places[LengthOf(keys)]++] = {slice, begin, begin + keys, partial, place, cut.splits};
    }
  }
  return partials;
}

}  // namespace

int32_t PlanHistorySplits(std::span<const AttentionSlice> slices, const DecodeGrid& grid,
                          std::vector<HistorySplit>& splits) {
  int32_t best = 0;
  Counts best_counts;
  int64_t soonest = std::numeric_limits<int64_t>::max();
  for (int32_t least = kMinSplitKeys; least <= 4 * kMinSplitKeys; least *= 2) {
    const Counts counts = CountSplits(slices, least);
    const int64_t keys = KeysUntilDone(counts, grid);
    if (keys >= soonest) continue;
    soonest = keys;
    best = least;
    best_counts = counts;
  }
  return PlaceSplits(slices, best, best_counts, splits);
}

}  // namespace baton::cuda
