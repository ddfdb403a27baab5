#include <algorithm>
#include <functional>

#include "kernels/prefill_attention.h"

namespace baton::cuda {

std::vector<AttentionSlice> PlanQueryTiles(std::span<const AttentionSlice> slices, int32_t tile_queries) {
  std::vector<AttentionSlice> tiles;
  for (const AttentionSlice& slice : slices) {
    for (int32_t row = 0; row < slice.rows; row += tile_queries) {
      tiles.push_back({.first_row = slice.first_row + row,
                       .rows = std::min(tile_queries, slice.rows - row),
                       .start = slice.start + row,
                       .table = slice.table});
    }
  }
  std::ranges::stable_sort(tiles, std::ranges::greater(),
                           [](const AttentionSlice& tile) { return tile.start + tile.rows; });
  return tiles;
}

}  // namespace baton::cuda
