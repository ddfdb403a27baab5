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

constexpr int64_t kVectors = kPanelOutputs / kLanes;  // of a panel

// A weight format as a tile sees it. In one step, kColumns columns of k, one X of each row is multiplied with both
// vectors of a panel, which lie together in one W.
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
  using W = uint32_t[kLanes];  // an output of the first vector in the lower half, one of the second in the upper
  using Vector = F32x16;
  static Vector LoadVector(const W& w, int v) { return v == 0 ? WidenLower(w) : WidenUpper(w); }
  static F32x16 Step(F32x16 sum, X x, Vector w) { return Fma(Broadcast(x), w, sum); }
};

#ifdef __AVX512BF16__
// Two columns of k: sum += x0 * w0 + x1 * w1.
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

// ---- one tile

// Some steps of k for a few rows and one panel, or a vector of it.
template <class Format>
struct Block {
  const typename Format::X* x;  // [rows], x_stride apart
  int64_t x_stride;
  const typename Format::W* w;  // [steps]
  int64_t steps;
  const float* start;  // [rows][kPanelOutputs], the sums to go on from; start_stride apart, 0 for the bias
  int64_t start_stride;
  float* sums;        // [rows][kPanelOutputs]
  const char* ahead;  // weights that are needed next, fetched meanwhile: ahead_step bytes per step
  int64_t ahead_step;
};

// Rows times kWidth vectors of a panel, from kVector on. Not inlined: its loop needs all registers.
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
    // Three pointers and multiples of the stride address twelve rows; left alone, gcc keeps twelve pointers and spills.
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

// Calls the tile of `rows` rows, [1, kTileRows] and at most kTileSums / kWidth.
template <class Format, int kWidth, int kVector, int kRows = 1>
void TileOf(int64_t rows, const Block<Format>& block) {
  if constexpr (kRows < kTileRows && (kRows + 1) * kWidth <= kTileSums) {
    if (rows > kRows) return TileOf<Format, kWidth, kVector, kRows + 1>(rows, block);
  }
  Tile<Format, kRows, kWidth, kVector>(block);
}

// A tile of both vectors of a panel where so many rows fit, else one vector after the other.
template <class Format>
void PanelTile(int64_t rows, const Block<Format>& b) {
  if (rows * kVectors <= kTileSums) return TileOf<Format, kVectors, 0>(rows, b);
  if constexpr (kTileRows * kVectors > kTileSums) {
    TileOf<Format, 1, 0>(rows, b);
    TileOf<Format, 1, 1>(rows, b);
  }
}

// ---- what becomes of the sums

// silu(gate) * up, silu(g) = g / (1 + e^-g)
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

// `rows` rows from `row` on of one panel: sums [rows][kPanelOutputs].
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

// Fetches the lines of y that Finish will write: rows are far apart, and each store would wait for its line.
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

// ---- all of k for one panel

// Steps of k after which all rows have their turn, so that all tiles but one read the weights from the first-level
// cache.
constexpr int64_t kStepsPerBlock = 384;
// How far a single tile fetches ahead, in bytes.
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
    // Blocks of nearly equal size.
    const int64_t blocks = tiles_ > 1 ? (steps_ + kStepsPerBlock - 1) / kStepsPerBlock : 1;
    steps_per_block_ = (steps_ + blocks - 1) / blocks;
  }

  // The rows times panel `panel`.
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
      // The first tiles share in fetching the next block's weights, which lie behind this one's.
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

  // All rows of one block, in tiles of nearly equal size: a last tile of one row would wait for the latency of its
  // chains.
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
