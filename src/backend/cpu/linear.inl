// Projections: y[rows, n] = x[rows, k] W^T + bias over packed panels. A tile of rows x panels of accumulators walks k.
//
// Every output is one chain of multiply-adds over k in ascending order that starts from the bias. Tiles, blocks of k
// (partial sums wait in y, exactly) and the split over threads do not change that chain, so neither do they the bits.
#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels.h"

namespace baton {
namespace {

// Weight formats as the tile sees them. X is what is broadcast per step, W what one step of a panel is made of.
struct F32Steps {
  using X = float;
  using W = float;
  static constexpr int64_t kStepsPerBlock = 256;
  static F32x16 Step(F32x16 sum, X x, const W* w) { return Fma(Broadcast(x), Load(w), sum); }
};

struct Bf16Steps {
  using X = float;
  using W = Bf16;
  static constexpr int64_t kStepsPerBlock = 256;
  static F32x16 Step(F32x16 sum, X x, const W* w) { return Fma(Broadcast(x), LoadBf16(w), sum); }
};

#ifdef __AVX512BF16__
// A step is a pair of k: X holds two bf16 values, W sixteen pairs.
struct Bf16PairSteps {
  using X = uint32_t;
  using W = uint32_t;
  static constexpr int64_t kStepsPerBlock = 256;
  static F32x16 Step(F32x16 sum, X x, const W* w) {
    const __m512i pairs = _mm512_loadu_si512(w);
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)_mm512_set1_epi32(static_cast<int>(x)), (__m512bh)pairs)};
  }
};
#endif

template <class Format>
struct Block {
  const typename Format::X* x;
  int64_t x_stride;
  const typename Format::W* w;  // [panels][panel_stride]
  int64_t panel_stride;
  int64_t steps;
  const float* start;    // added to; rows start_stride apart
  int64_t start_stride;  // 0: the same row for all
  float* y;
  int64_t y_stride;
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
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) {
        sum[r][p] = Format::Step(sum[r][p], b.x[r * b.x_stride + s], b.w + p * b.panel_stride + s * kPanelWidth);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) Store(b.y + r * b.y_stride + p * kPanelWidth, sum[r][p]);
  }
}

// Rows [0, rows) of one block, a tile at a time.
template <class Format, int kPanels, int kRows = kTileRows>
void Rows(Block<Format> b, int64_t rows) {
  for (; rows >= kRows; rows -= kRows) {
    Tile<Format, kRows, kPanels>(b);
    b.x += kRows * b.x_stride;
    b.start += kRows * b.start_stride;
    b.y += kRows * b.y_stride;
  }
  if constexpr (kRows > 1) {
    if (rows > 0) Rows<Format, kPanels, kRows - 1>(b, rows);
  }
}

// All of k for kPanels panels from `panel` on.
template <class Format, int kPanels>
void Panels(const LinearArgs& a, int64_t panel, float* y, int64_t y_stride) {
  using X = typename Format::X;
  using W = typename Format::W;
  static constexpr float kNoBias[kPanels * kPanelWidth] = {};
  const int64_t steps = a.k;
  Block<Format> b;
  b.x_stride = a.x_stride;
  b.panel_stride = steps * kPanelWidth;
  b.y = y;
  b.y_stride = y_stride;
  b.start = a.bias == nullptr ? kNoBias : a.bias + panel * kPanelWidth;
  b.start_stride = 0;
  int64_t done = 0;
  do {
    b.steps = steps - done < Format::kStepsPerBlock ? steps - done : Format::kStepsPerBlock;
    b.x = static_cast<const X*>(a.x) + done;
    b.w = static_cast<const W*>(a.panels) + panel * b.panel_stride + done * kPanelWidth;
    Rows<Format, kPanels>(b, a.rows);
    b.start = b.y;
    b.start_stride = b.y_stride;
    done += b.steps;
  } while (done < steps);
}

template <class Format>
void LinearRange(const LinearArgs& a) {
  int64_t panel = a.panel_begin;
  const int64_t whole = a.n / kPanelWidth < a.panel_end ? a.n / kPanelWidth : a.panel_end;
  for (; panel + kTilePanels <= whole; panel += kTilePanels) {
    Panels<Format, kTilePanels>(a, panel, a.y + panel * kPanelWidth, a.y_stride);
  }
  for (; panel < whole; ++panel) Panels<Format, 1>(a, panel, a.y + panel * kPanelWidth, a.y_stride);
  if (panel >= a.panel_end) return;
  // The last panel is wider than what is left of y.
  LinearArgs row = a;
  row.rows = 1;
  for (int64_t r = 0; r < a.rows; ++r) {
    float last[kPanelWidth];
    row.x = static_cast<const typename Format::X*>(a.x) + r * a.x_stride;
    Panels<Format, 1>(row, panel, last, kPanelWidth);
    memcpy(a.y + r * a.y_stride + panel * kPanelWidth, last, (a.n - panel * kPanelWidth) * sizeof(float));
  }
}

void LinearF32(const LinearArgs& args) { LinearRange<F32Steps>(args); }

void LinearBf16(const LinearArgs& args) {
#ifdef __AVX512BF16__
  LinearArgs pairs = args;
  pairs.k = args.k / 2;
  pairs.x_stride = args.x_stride / 2;
  LinearRange<Bf16PairSteps>(pairs);
#else
  LinearRange<Bf16Steps>(args);
#endif
}

void RoundRowToBf16(const float* x, int64_t count, Bf16* out) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) StoreBf16(out + i, Load(x + i));
  for (; i < count; ++i) out[i] = RoundToBf16(x[i]);
}

}  // namespace
}  // namespace baton
