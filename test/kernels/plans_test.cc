// Tests of the host code that splits a batch for attention. They need no device.
#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

#include "catch.h"
#include "kernels/block_copy.h"
#include "kernels/history_splits.h"
#include "kernels/prefill_attention.h"

namespace baton::cuda {
namespace {

TEST_CASE("PlanQueryTiles covers each row of each slice once, most keys first") {
  std::mt19937 random(1);
  for (const int32_t queries : {1, 16, 42}) {
    std::vector<AttentionSlice> slices;
    int32_t rows = 0;
    for (int i = 0; i < 20; ++i) {
      const auto count = static_cast<int32_t>(random() % 100 + 1);
      slices.push_back({.first_row = rows, .rows = count, .start = static_cast<int32_t>(random() % 500), .table = i});
      rows += count;
    }
    std::vector<int> seen(static_cast<size_t>(rows));
    int32_t keys = std::numeric_limits<int32_t>::max();
    for (const AttentionSlice& tile : PlanQueryTiles(slices, queries)) {
      REQUIRE(tile.rows >= 1);
      REQUIRE(tile.rows <= queries);
      const AttentionSlice& whole = slices[static_cast<size_t>(tile.table)];
      CHECK(tile.start - whole.start == tile.first_row - whole.first_row);
      for (int32_t row = tile.first_row; row < tile.first_row + tile.rows; ++row) ++seen[static_cast<size_t>(row)];
      CHECK(tile.start + tile.rows <= keys);
      keys = tile.start + tile.rows;
    }
    CHECK(std::count(seen.begin(), seen.end(), 1) == rows);
  }
}

std::vector<AttentionSlice> SlicesOf(const std::vector<int32_t>& histories) {
  std::vector<AttentionSlice> slices;
  for (const int32_t keys : histories) {
    slices.push_back({.first_row = static_cast<int32_t>(slices.size()), .rows = 1, .start = keys - 1, .table = 0});
  }
  return slices;
}

// Returns the splits of one slice, in the order of their keys.
std::vector<HistorySplit> SplitsOf(int32_t slice, const std::vector<HistorySplit>& splits) {
  std::vector<HistorySplit> own;
  std::copy_if(splits.begin(), splits.end(), std::back_inserter(own),
               [&](const HistorySplit& split) { return split.slice == slice; });
  std::sort(own.begin(), own.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return own;
}

TEST_CASE("PlanHistorySplits covers each history once in at most 32 long splits") {
  for (const int32_t ctas : {1, 10, 264}) {
    const std::vector<AttentionSlice> slices =
        SlicesOf({1, 255, 256, 257, 383, 384, 385, 1024, 1025, 8191, 8192, 8193, 100'000});
    std::vector<HistorySplit> splits;
    const int32_t partials = PlanHistorySplits(slices, {.kv_heads = 2, .ctas = ctas}, splits);
    std::vector<int> used(static_cast<size_t>(partials));
    for (size_t i = 0; i < slices.size(); ++i) {
      const int32_t keys = slices[i].start + 1;
      INFO(keys << " keys, " << ctas << " CTAs");
      const std::vector<HistorySplit> own = SplitsOf(static_cast<int32_t>(i), splits);
      REQUIRE(!own.empty());
      CHECK(std::ssize(own) <= kMaxSplits);
      int32_t end = 0;
      for (size_t part = 0; part < own.size(); ++part) {
        CHECK(own[part].begin == end);
        CHECK(own[part].begin % kBlockTokens == 0);
        CHECK(own[part].place == static_cast<int32_t>(part));
        CHECK(own[part].splits == std::ssize(own));
        end = own[part].end;
        if (own.size() == 1) {
          CHECK(own[part].partial == -1);
        } else {
          CHECK(end - own[part].begin >= kMinSplitKeys / 2);
          CHECK(own[part].partial == own[0].partial + static_cast<int32_t>(part));
          ++used[static_cast<size_t>(own[part].partial)];
        }
      }
      CHECK(end == keys);
    }
    CHECK(std::count(used.begin(), used.end(), 1) == partials);
    const auto blocks = [](const HistorySplit& split) { return (split.end - split.begin - 1) / kBlockTokens; };
    CHECK(std::is_sorted(splits.begin(), splits.end(),
                         [&](const auto& a, const auto& b) { return blocks(a) > blocks(b); }));
  }
}

TEST_CASE("PlanHistorySplits splits few histories and leaves many whole") {
  constexpr DecodeGrid kGrid = {.kv_heads = 8, .ctas = 264};
  std::vector<HistorySplit> splits;
  PlanHistorySplits(SlicesOf({1025}), kGrid, splits);
  CHECK(splits.size() == 4);
  PlanHistorySplits(SlicesOf(std::vector<int32_t>(256, 1025)), kGrid, splits);
  CHECK(splits.size() == 256);
  // 80 x 8 whole histories would take three rounds, of which the last has work for 112 of 264 CTAs.
  PlanHistorySplits(SlicesOf(std::vector<int32_t>(80, 1024)), kGrid, splits);
  CHECK(splits.size() > 80);
}

TEST_CASE("QueriesPerTile returns whole groups, or 0 when none fits") {
  for (const PrefillKernel kernel : {PrefillKernel::kMma, PrefillKernel::kWgmma}) {
    for (const int32_t head_dim : {64, 128}) {
      for (int32_t group = 1; group <= 16; ++group) CHECK(QueriesPerTile(kernel, head_dim, group) >= 1);
      CHECK(QueriesPerTile(kernel, head_dim, 1000) == 0);
    }
  }
}

TEST_CASE("CopyPieces rounds the bytes of a run up") {
  CHECK(CopyPieces(1) == 1);
  CHECK(CopyPieces(kCopyPieceBytes) == 1);
  CHECK(CopyPieces(kCopyPieceBytes + 1) == 2);
}

}  // namespace
}  // namespace baton::cuda
