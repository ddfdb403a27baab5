// Projections z[rows, n] = x[rows, k] W^T + bias over packed panels: a tile of rows x panels of accumulators walks k.
//
// Every output is one chain of multiply-adds over k in ascending order that starts from the bias. How rows are cut into
// tiles, k into blocks (partial sums wait in memory, exactly) and panels over threads does not change that chain, and
// so not the bits.
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels.h"

namespace baton {
namespace {

// A weight format as a tile sees it: one step multiplies one X of each row with one W of each panel, which are kColumns
// of k. kWiden: many rows are better served by weights widened to float first.
struct F32Steps {
  static constexpr int64_t kColumns = 1;
  static constexpr bool kWiden = false;
  using X = float;
  using W = float[kPanelWidth];
  static F32x16 Step(F32x16 sum, X x, const W& w) { return Fma(Broadcast(x), Load(w), sum); }
};

struct Bf16Steps {
  static constexpr int64_t kColumns = 1;
  static constexpr bool kWiden = true;
  using X = float;
  using W = Bf16[kPanelWidth];
  static F32x16 Step(F32x16 sum, X x, const W& w) { return Fma(Broadcast(x), LoadBf16(w), sum); }
};

#ifdef __AVX512BF16__
// A step is two columns of k: sum += x0 * w0 + x1 * w1.
struct Bf16PairSteps {
  static constexpr int64_t kColumns = 2;
  static constexpr bool kWiden = false;
  using X = uint32_t;
  using W = uint32_t[kPanelWidth];
  static F32x16 Step(F32x16 sum, X x, const W& w) {
    const __m512i x16 = _mm512_set1_epi32(static_cast<int>(x));
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)x16, (__m512bh)_mm512_loadu_si512(w))};
  }
};
#endif

// ---- one tile

// Some steps of k for a few rows and a few adjacent panels.
template <class Format>
struct Block {
  const typename Format::X* x;  // [rows], x_stride apart
  int64_t x_stride;
  const typename Format::W* w;  // [panels], w_stride apart
  int64_t w_stride;
  int64_t steps;
  const float* start;  // [rows][panels][16], the sums to go on from; start_stride between rows, 0 for the bias
  int64_t start_stride;
  float* sums;  // [rows][panels][16], sums_stride between rows
  int64_t sums_stride;
  const char* ahead;  // [panels] weights that are needed next, fetched meanwhile: ahead_step bytes per step
  int64_t ahead_stride;
  int64_t ahead_step;
};

template <class Format, int kRows, int kPanels>
void Tile(const Block<Format>& b) {
  F32x16 sum[kRows][kPanels];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) sum[r][p] = Load(b.start + r * b.start_stride + p * kPanelWidth);
  }
  for (int64_t s = 0; s < b.steps; ++s) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) Prefetch(b.ahead + p * b.ahead_stride + s * b.ahead_step);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) {
        sum[r][p] = Format::Step(sum[r][p], b.x[r * b.x_stride + s], b.w[p * b.w_stride + s]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) Store(b.sums + r * b.sums_stride + p * kPanelWidth, sum[r][p]);
  }
}

// Calls the tile of `rows` rows, [1, kTileRows].
template <class Format, int kPanels, int kRows = 1>
void TileOf(int64_t rows, const Block<Format>& block) {
  if constexpr (kRows < kTileRows && (kRows + 1) * kPanels <= kTileSums) {
    if (rows > kRows) return TileOf<Format, kPanels, kRows + 1>(rows, block);
  }
  Tile<Format, kRows, kPanels>(block);
}

// All rows, in tiles of nearly equal size: a last tile of one row would wait for the latency of its few chains.
template <class Format, int kPanels>
void Tiles(Block<Format> b, int64_t rows) {
  constexpr int64_t kMostRows = kTileSums / kPanels < kTileRows ? kTileSums / kPanels : kTileRows;
  for (int64_t tiles = (rows + kMostRows - 1) / kMostRows; tiles > 0; --tiles) {
    const int64_t tile_rows = (rows + tiles - 1) / tiles;
    TileOf<Format, kPanels>(tile_rows, b);
    rows -= tile_rows;
    b.x += tile_rows * b.x_stride;
    b.start += tile_rows * b.start_stride;
    b.sums += tile_rows * b.sums_stride;
    b.ahead_stride = b.ahead_step = 0;  // all is fetched
  }
}

// ---- all of k for a group of panels

// Rows of x that are multiplied with one group of panels before the next group. Their sums are kept on the stack.
constexpr int64_t kMostRowsPerBlock = 192;
constexpr int64_t kGroupSums = kMostRowsPerBlock * 2 * kPanelWidth;
// Steps of k after which all rows have their turn, so that the weights of these steps are read from the first-level
// cache by all tiles but one.
constexpr int64_t kStepsPerBlock = 256;

// Panels [panel, panel + count) for rows [row, row + rows) of x: [rows][count][16] sums.
struct Group {
  int64_t panel;
  int64_t count;
  int64_t row;
  int64_t rows;
  float* sums;
};

// Widens bf16 weights once for the tiles of many rows.
template <int kPanels>
void TilesOfWidened(const Block<Bf16Steps>& b, int64_t rows) {
  alignas(64) float wide[kPanels][kStepsPerBlock][kPanelWidth];
  for (int p = 0; p < kPanels; ++p) {
    for (int64_t s = 0; s < b.steps; ++s) Store(wide[p][s], LoadBf16(b.w[p * b.w_stride + s]));
  }
  const Block<F32Steps> widened = {b.x,    b.x_stride,    wide[0], kStepsPerBlock, b.steps,     b.start, b.start_stride,
                                   b.sums, b.sums_stride, b.ahead, b.ahead_stride, b.ahead_step};
  Tiles<F32Steps, kPanels>(widened, rows);
}
template <int kPanels, class Format>
void TilesOfWidened(const Block<Format>&, int64_t) {}

// kPanels panels of a group, the first being `first`.
template <class Format, int kPanels>
void SumOverK(const LinearArgs& a, const Group& group, int64_t first) {
  using W = typename Format::W;
  static constexpr float kNoBias[kPanels * kPanelWidth] = {};
  const int64_t steps = a.k / Format::kColumns;
  const int64_t most_steps = group.rows > kTileRows ? kStepsPerBlock : steps;
  const W* w = static_cast<const W*>(a.panels) + (group.panel + first) * steps;
  Block<Format> b;
  b.x_stride = a.x_stride / Format::kColumns;
  b.w_stride = steps;
  b.start = a.bias == nullptr ? kNoBias : a.bias + (group.panel + first) * kPanelWidth;
  b.start_stride = 0;
  b.sums = group.sums + first * kPanelWidth;
  b.sums_stride = group.count * kPanelWidth;
  b.ahead_step = sizeof(W);
  int64_t done = 0;
  do {
    b.steps = steps - done < most_steps ? steps - done : most_steps;
    b.x = static_cast<const typename Format::X*>(a.x) + group.row * b.x_stride + done;
    b.w = w + done;
    // The next block of these panels, or the first one of the next panels, which lie behind these.
    b.ahead = reinterpret_cast<const char*>(done + b.steps < steps ? b.w + b.steps : w + kPanels * steps);
    b.ahead_stride = steps * sizeof(W);
    if (Format::kWiden && group.rows > kTileRows) {
      TilesOfWidened<kPanels>(b, group.rows);
    } else {
      Tiles<Format, kPanels>(b, group.rows);
    }
    b.start = b.sums;
    b.start_stride = b.sums_stride;
    done += b.steps;
  } while (done < steps);
}

// ---- what becomes of the sums

F32x16 SwiGlu(F32x16 gate, F32x16 up) {
  const F32x16 sigmoid = Div(Broadcast(1), Add(Broadcast(1), Exp(Sub(Zero(), gate))));
  return Mul(Mul(gate, sigmoid), up);
}

// Writes the first `columns` of sixteen values.
void StoreColumns(float* y, F32x16 value, int64_t columns) {
  if (columns >= kPanelWidth) return Store(y, value);
  float all[kPanelWidth];
  Store(all, value);
  memcpy(y, all, columns * sizeof(float));
}
void StoreColumns(Bf16* y, F32x16 value, int64_t columns) {
  if (columns >= kPanelWidth) return StoreBf16(y, value);
  Bf16 all[kPanelWidth];
  StoreBf16(all, value);
  memcpy(y, all, columns * sizeof(Bf16));
}
F32x16 LoadColumns(const float* y, int64_t columns) {
  if (columns >= kPanelWidth) return Load(y);
  float all[kPanelWidth] = {};
  memcpy(all, y, columns * sizeof(float));
  return Load(all);
}

void StoreGroup(const LinearArgs& a, const Group& group) {
  for (int64_t r = 0; r < group.rows; ++r) {
    float* y = static_cast<float*>(a.y) + (group.row + r) * a.y_stride;
    for (int64_t p = 0; p < group.count; ++p) {
      const int64_t column = (group.panel + p) * kPanelWidth;
      const F32x16 sum = Load(group.sums + (r * group.count + p) * kPanelWidth);
      const bool add = a.then == LinearThen::kAdd;
      StoreColumns(y + column, add ? Add(LoadColumns(y + column, a.n - column), sum) : sum, a.n - column);
    }
  }
}

template <class Y>
void StoreSwiGlu(const LinearArgs& a, const Group& group) {
  for (int64_t r = 0; r < group.rows; ++r) {
    Y* y = static_cast<Y*>(a.y) + (group.row + r) * a.y_stride;
    for (int64_t p = 0; p < group.count; p += 2) {
      const int64_t column = (group.panel + p) / 2 * kPanelWidth;
      const float* sums = group.sums + (r * group.count + p) * kPanelWidth;
      StoreColumns(y + column, SwiGlu(Load(sums), Load(sums + kPanelWidth)), a.n / 2 - column);
    }
  }
}

void Finish(const LinearArgs& a, const Group& group) {
  if (a.then != LinearThen::kSwiGlu) {
    StoreGroup(a, group);
  } else if (a.y_is_bf16) {
    StoreSwiGlu<Bf16>(a, group);
  } else {
    StoreSwiGlu<float>(a, group);
  }
}

// ---- rows x panels

// One block of rows; tiles are kPanels wide.
template <class Format, int kPanels>
void RowBlock(const LinearArgs& a, int64_t row, int64_t rows) {
  constexpr int64_t kMostPanels = kPanels < 2 ? 2 : kPanels;
  alignas(64) float sums[kGroupSums];
  Group group = {a.panel_begin, 0, row, rows, sums};
  for (; group.panel < a.panel_end; group.panel += group.count) {
    const int64_t left = a.panel_end - group.panel;
    group.count = left < kMostPanels ? left : kMostPanels;
    int64_t first = 0;
    for (; first + kPanels <= group.count; first += kPanels) SumOverK<Format, kPanels>(a, group, first);
    for (; first < group.count; ++first) SumOverK<Format, 1>(a, group, first);
    Finish(a, group);
  }
}

template <class Format>
void LinearRange(const LinearArgs& a) {
  // Few rows: wide tiles, so that many chains of additions hide each other's latency.
  if (a.rows * 8 <= kTileSums) return RowBlock<Format, 8>(a, 0, a.rows);
  if (a.rows * 4 <= kTileSums) return RowBlock<Format, 4>(a, 0, a.rows);
  if (a.rows * 2 <= kTileSums && kTileSums < kTileRows * 2) return RowBlock<Format, 2>(a, 0, a.rows);
  // Many: as many at once as half a second-level cache holds.
  const int64_t cached =
      (int64_t{512} << 10) / (a.k * static_cast<int64_t>(sizeof(typename Format::X) / Format::kColumns));
  int64_t block = cached / kTileRows * kTileRows;
  if (block < 4 * kTileRows) block = 4 * kTileRows;
  if (block > kMostRowsPerBlock) block = kMostRowsPerBlock;
  for (int64_t row = 0; row < a.rows; row += block) {
    RowBlock<Format, kTileSums / kTileRows>(a, row, a.rows - row < block ? a.rows - row : block);
  }
}

void LinearF32(const LinearArgs& args) { LinearRange<F32Steps>(args); }

#ifdef __AVX512BF16__
void LinearBf16(const LinearArgs& args) { LinearRange<Bf16PairSteps>(args); }
#else
void LinearBf16(const LinearArgs& args) { LinearRange<Bf16Steps>(args); }
#endif

void RoundRowToBf16(const float* x, int64_t count, Bf16* out) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) StoreBf16(out + i, Load(x + i));
  for (; i < count; ++i) out[i] = RoundToBf16(x[i]);
}

}  // namespace
}  // namespace baton
