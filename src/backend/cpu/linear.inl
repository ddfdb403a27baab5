// Projections z[rows, n] = x[rows, k] W^T + bias over packed panels. A tile of accumulators, rows x
// panel outputs, walks k.
//
// Every output is one chain of multiply-adds over k in ascending order that starts from the bias.
// Rows are cut into tiles, k into pieces (with exact partial sums in memory), and panels are split
// over threads. These cuts do not change the chain, so they do not change the bits.
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels.h"

namespace baton {
namespace {

constexpr int64_t kVectors = kPanelOutputs / kLanes;  // vectors of a panel

// A weight format, from a tile's point of view. One step covers kColumns columns of k. It
// multiplies one X of each row with both vectors of a panel, which lie together in one W.
struct F32Steps {
  static constexpr int64_t kColumns = 1;
  using X = float;
  using W = float[kPanelOutputs];
  using Vector = F32x16;
  static Vector LoadVector(const W& w, int v) { return Load(w + v * kLanes); }
  static F32x16 Step(F32x16 sum, X x, Vector w) { return Fma(Broadcast(x), w, sum); }
};

struct Bf16Steps {
  static constexpr int64_t kColumns = 1;
  using X = float;
  // The lower half holds an output of the first vector, and the upper half an output of the second
  // vector.
  using W = uint32_t[kLanes];
  using Vector = F32x16;
  static Vector LoadVector(const W& w, int v) { return v == 0 ? WidenLower(w) : WidenUpper(w); }
  static F32x16 Step(F32x16 sum, X x, Vector w) { return Fma(Broadcast(x), w, sum); }
};

#ifdef __AVX512BF16__
// Two columns of k per step: sum += x0 * w0 + x1 * w1.
struct Bf16PairSteps {
  static constexpr int64_t kColumns = 2;
  using X = uint32_t;
  using W = uint32_t[kPanelOutputs];
  using Vector = __m512i;
  static Vector LoadVector(const W& w, int v) { return _mm512_loadu_si512(w + v * kLanes); }
  static F32x16 Step(F32x16 sum, X x, Vector w) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)_mm512_set1_epi32(static_cast<int>(x)), (__m512bh)w)};
  }
};
#endif

// ---- One tile.

// The arguments of a tile: some steps of k for a few rows and one or both vectors of a panel.
template <class Format>
struct Block {
  const typename Format::X* x;  // [rows], x_stride apart
  int64_t x_stride;
  const typename Format::W* w;  // [steps]
  int64_t steps;
  // [rows][kPanelOutputs], the initial sums. Rows are start_stride apart. The stride is 0 for the
  // bias.
  const float* start;
  int64_t start_stride;
  float* sums;  // [rows][kPanelOutputs]
  // The weights to prefetch meanwhile, ahead_step bytes per step.
  const char* ahead;
  int64_t ahead_step;
};

// Multiplies kRows rows with kWidth vectors of a panel, from vector kVector on. Not inlined,
// because its loop needs all registers.
template <class Format, int kRows, int kWidth, int kVector>
__attribute__((noinline)) void Tile(const Block<Format>& b) {
  F32x16 sum[kRows][kWidth];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kWidth; ++v) sum[r][v] = Load(b.start + r * b.start_stride + (kVector + v) * kLanes);
  }
  const typename Format::X* x = b.x;
  const typename Format::X* x4 = kRows > 4 ? b.x + 4 * b.x_stride : x;
  const typename Format::X* x8 = kRows > 8 ? b.x + 8 * b.x_stride : x;
  for (int64_t s = 0; s < b.steps; ++s) {
#pragma GCC unroll 4
    for (size_t line = 0; line < sizeof(typename Format::W); line += 64) {
      Prefetch(b.ahead + s * b.ahead_step + line);
    }
    // Three pointers and multiples of the stride address twelve rows. Without this statement, gcc
    // keeps twelve pointers and spills registers.
    asm volatile("" : "+r"(x), "+r"(x4), "+r"(x8));
    typename Format::Vector w[kWidth];
#pragma GCC unroll 16
    for (int v = 0; v < kWidth; ++v) w[v] = Format::LoadVector(b.w[s], kVector + v);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const typename Format::X* row = (r < 4 ? x : r < 8 ? x4 : x8) + r % 4 * b.x_stride;
#pragma GCC unroll 16
      for (int v = 0; v < kWidth; ++v) sum[r][v] = Format::Step(sum[r][v], *row, w[v]);
    }
    ++x;
    ++x4;
    ++x8;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kWidth; ++v) Store(b.sums + r * kPanelOutputs + (kVector + v) * kLanes, sum[r][v]);
  }
}

// Calls the tile for `rows` rows. `rows` is in [1, kTileRows] and at most kTileSums / kWidth.
template <class Format, int kWidth, int kVector, int kRows = 1>
void TileOf(int64_t rows, const Block<Format>& block) {
  if constexpr (kRows < kTileRows && (kRows + 1) * kWidth <= kTileSums) {
    if (rows > kRows) return TileOf<Format, kWidth, kVector, kRows + 1>(rows, block);
  }
  Tile<Format, kRows, kWidth, kVector>(block);
}

// Runs one tile for both vectors of a panel if the rows' sums fit into registers, else one tile for
// each vector.
template <class Format>
void PanelTile(int64_t rows, const Block<Format>& b) {
  if (rows * kVectors <= kTileSums) return TileOf<Format, kVectors, 0>(rows, b);
  if constexpr (kTileRows * kVectors > kTileSums) {
    TileOf<Format, 1, 0>(rows, b);
    TileOf<Format, 1, 1>(rows, b);
  }
}

// ---- Operations on the sums.

// Returns silu(gate) * up, where silu(g) = g / (1 + e^-g).
F32x16 SwiGlu(F32x16 gate, F32x16 up) {
  const F32x16 exponential = Exp2(Mul(gate, Broadcast(-1.44269504F)));
  return Mul(Div(gate, Add(Broadcast(1), exponential)), up);
}

// Writes the first `columns` of sixteen values.
void StoreColumns(float* y, F32x16 value, int64_t columns) {
  if (columns >= kLanes) return Store(y, value);
  float all[kLanes];
  Store(all, value);
  memcpy(y, all, columns * sizeof(float));
}
void StoreColumns(Bf16* y, F32x16 value, int64_t columns) {
  if (columns >= kLanes) return StoreBf16(y, value);
  Bf16 all[kLanes];
  StoreBf16(all, value);
  memcpy(y, all, columns * sizeof(Bf16));
}
F32x16 LoadColumns(const float* y, int64_t columns) {
  if (columns >= kLanes) return Load(y);
  float all[kLanes] = {};
  memcpy(all, y, columns * sizeof(float));
  return Load(all);
}

// The sums of rows [row, row + rows) and one panel: sums is [rows][kPanelOutputs].
struct Sums {
  int64_t panel;
  int64_t row;
  int64_t rows;
  const float* sums;
};

void StoreSums(const LinearArgs& a, const Sums& z) {
  for (int64_t r = 0; r < z.rows; ++r) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const int64_t column = z.panel * kPanelOutputs + v * kLanes;
      if (column >= a.n) break;
      float* y = static_cast<float*>(a.y) + (z.row + r) * a.y_stride + column;
      F32x16 sum = Load(z.sums + r * kPanelOutputs + v * kLanes);
      if (a.then == LinearThen::kAdd) sum = Add(LoadColumns(y, a.n - column), sum);
      StoreColumns(y, sum, a.n - column);
    }
  }
}

template <class Y>
void StoreSwiGlu(const LinearArgs& a, const Sums& z) {
  const int64_t column = z.panel * kLanes;
  for (int64_t r = 0; r < z.rows; ++r) {
    const float* gate = z.sums + r * kPanelOutputs;
    Y* y = static_cast<Y*>(a.y) + (z.row + r) * a.y_stride + column;
    StoreColumns(y, SwiGlu(Load(gate), Load(gate + kLanes)), a.n / 2 - column);
  }
}

// Prefetches the lines of y that Finish will write. The rows are far apart, and each store would
// wait for its line.
void FetchOutput(const LinearArgs& a, int64_t panel, int64_t row, int64_t rows) {
  const int64_t size = a.y_is_bf16 ? sizeof(Bf16) : sizeof(float);
  const int64_t columns = a.then == LinearThen::kSwiGlu ? kLanes : kPanelOutputs;
  const char* y = static_cast<const char*>(a.y) + (row * a.y_stride + panel * columns) * size;
  for (int64_t r = 0; r < rows; ++r, y += a.y_stride * size) {
    Prefetch(y);
    Prefetch(y + columns * size - 1);
  }
}

void Finish(const LinearArgs& a, const Sums& z) {
  if (a.then != LinearThen::kSwiGlu) {
    StoreSums(a, z);
  } else if (a.y_is_bf16) {
    StoreSwiGlu<Bf16>(a, z);
  } else {
    StoreSwiGlu<float>(a, z);
  }
}

// ---- All of k for one panel.

// Steps in one piece of k. All tiles of rows compute a piece before the next piece begins, so all
// tiles but the first read the piece's weights from the first-level cache.
constexpr int64_t kStepsPerBlock = 384;
// Distance that a single tile prefetches ahead, in bytes.
constexpr int64_t kAheadBytes = 8192;

template <class Format>
class PanelLoop {
 public:
  PanelLoop(const LinearArgs& args, int64_t row, int64_t rows)
      : args_(args),
        row_(row),
        rows_(rows),
        tiles_((rows + kTileRows - 1) / kTileRows),
        steps_(args.k / Format::kColumns) {
    // Pieces have nearly equal sizes.
    const int64_t blocks = tiles_ > 1 ? (steps_ + kStepsPerBlock - 1) / kStepsPerBlock : 1;
    steps_per_block_ = (steps_ + blocks - 1) / blocks;
  }

  // Multiplies the rows with one panel.
  void Run(int64_t panel) {
    static constexpr float kNoBias[kPanelOutputs] = {};
    Block<Format> b;
    b.x_stride = args_.x_stride / Format::kColumns;
    b.x = static_cast<const X*>(args_.x) + row_ * b.x_stride;
    b.w = static_cast<const W*>(args_.panels) + panel * steps_;
    b.start = args_.bias == nullptr ? kNoBias : args_.bias + panel * kPanelOutputs;
    b.start_stride = 0;
    b.sums = sums_;
    for (int64_t done = 0; done < steps_; done += b.steps) {
      b.steps = steps_ - done < steps_per_block_ ? steps_ - done : steps_per_block_;
      // The first Fetchers() tiles share the prefetch of the next piece's weights, which lie
      // directly behind this piece's weights.
      b.ahead = reinterpret_cast<const char*>(b.w) + (tiles_ > 1 ? b.steps * kStepBytes : kAheadBytes);
      b.ahead_step = kStepBytes / Fetchers();
      const bool last = done + b.steps == steps_;
      Tiles(b, panel, last);
      b.x += b.steps;
      b.w += b.steps;
      b.start = sums_;
      b.start_stride = kPanelOutputs;
    }
  }

 private:
  using X = typename Format::X;
  using W = typename Format::W;

  static constexpr int64_t kStepBytes = sizeof(W);

  int64_t Fetchers() const { return tiles_ < 4 ? tiles_ : 4; }

  // Runs all rows of one piece in tiles of nearly equal size. A last tile of a single row would
  // wait for the latency of its chains of multiply-adds.
  void Tiles(Block<Format> b, int64_t panel, bool last) {
    int64_t row = 0;
    for (int64_t tile = 0; tile < tiles_; ++tile) {
      const int64_t rows = (rows_ - row + tiles_ - tile - 1) / (tiles_ - tile);
      if (last) FetchOutput(args_, panel, row_ + row, rows);
      PanelTile(rows, b);
      if (last) Finish(args_, {panel, row_ + row, rows, b.sums});
      row += rows;
      b.x += rows * b.x_stride;
      b.start += rows * b.start_stride;
      b.sums += rows * kPanelOutputs;
      b.ahead += b.steps * b.ahead_step;
      if (tile + 1 == Fetchers()) b.ahead_step = 0;
    }
  }

  const LinearArgs& args_;
  const int64_t row_;
  const int64_t rows_;
  const int64_t tiles_;
  const int64_t steps_;
  int64_t steps_per_block_;
  alignas(64) float sums_[kLinearRows * kPanelOutputs];
};

template <class Format>
void LinearRange(const LinearArgs& a) {
  for (int64_t row = 0; row < a.rows; row += kLinearRows) {
    PanelLoop<Format> loop(a, row, a.rows - row < kLinearRows ? a.rows - row : kLinearRows);
    for (int64_t panel = a.panel_begin; panel < a.panel_end; ++panel) loop.Run(panel);
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
