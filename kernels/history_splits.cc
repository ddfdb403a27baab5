#include "kernels/history_splits.h"

#include <algorithm>
#include <array>
#include <limits>

namespace baton::cuda {
namespace {

// Splits of `least` keys and more, longest first.
int32_t PlanSplitsOf(int32_t least, std::span<const AttentionSlice> slices, std::vector<HistorySplit>& splits) {
  // Sorted by counting blocks, as this runs every step; splits of a history that long are about equal anyway.
  constexpr int32_t kLengths = 8192 / kBlockTokens;
  const auto length = [](const HistorySplit& split) {
    return std::min((split.end - split.begin - 1) / kBlockTokens, kLengths - 1);
  };
  const auto for_each = [&](auto visit) {
    for (int32_t slice = 0; slice < std::ssize(slices); ++slice) {
      const int32_t keys = slices[slice].start + 1;
      const int32_t step = (keys - 1) / (least * kMaxSplits) * least + least;
      const int32_t count = std::max(1, (keys + step / 2 - 1) / step);
      for (int32_t place = 0; place < count; ++place) {
        const int32_t begin = place * step;
        visit(HistorySplit{slice, begin, place == count - 1 ? keys : begin + step, -1, place, count});
      }
    }
  };
  std::array<int32_t, kLengths + 1> places{};  // of the next split of each length
  for_each([&](const HistorySplit& split) { ++places[length(split)]; });
  for (int32_t i = kLengths - 1; i >= 0; --i) places[i] += places[i + 1];
  splits.resize(places[0]);
  for (int32_t i = 0; i < kLengths; ++i) places[i] = places[i + 1];
  int32_t partials = 0;
  for_each([&](HistorySplit split) {
    if (split.splits > 1) split.partial = partials++;
    splits[places[length(split)]++] = split;
  });
  return partials;
}

// Of the first CTA, which has the longest unit of every round, in the time that a key takes.
int64_t KeysUntilDone(const std::vector<HistorySplit>& splits, const DecodeGrid& grid) {
  constexpr int64_t kUnitKeys = 24;  // what a unit takes besides: H200, splits of 256 keys against those of 1,024
  int64_t keys = 0;
  for (int64_t unit = 0; unit < std::ssize(splits) * grid.kv_heads; unit += grid.ctas) {
    const HistorySplit& split = splits[unit / grid.kv_heads];
    keys += split.end - split.begin + kUnitKeys;
  }
  return keys;
}

}  // namespace

int32_t PlanHistorySplits(std::span<const AttentionSlice> slices, const DecodeGrid& grid,
                          std::vector<HistorySplit>& splits) {
  constexpr int32_t kLongest = 4 * kMinSplitKeys;
  int32_t best = 0, partials = 0;
  int64_t soonest = std::numeric_limits<int64_t>::max();
  for (int32_t least = kMinSplitKeys; least <= kLongest; least *= 2) {
    partials = PlanSplitsOf(least, slices, splits);
    const int64_t keys = KeysUntilDone(splits, grid);
    if (keys >= soonest) continue;
    soonest = keys;
    best = least;
  }
  return best == kLongest ? partials : PlanSplitsOf(best, slices, splits);  // the longest ones are what is there
}

}  // namespace baton::cuda
