// Attention over paged history, a tile of keys at a time with an online softmax (Milakov, arXiv 1805.02867; the tiles
// of FlashAttention, arXiv 2205.14135).
//
// Tiles and spans of keys start at fixed positions, and masked keys contribute exact zeros, so a row's order of
// operations depends on its position and the model's shape alone: not on its chunk, its neighbours or the threads.
// Positions that nobody has written are never read: their keys and values are zeros here.
#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace baton {
namespace {

// ---- products of a few rows with a tile: sums[row][column] (+)= x[row][step] w[column / 16][step][column % 16]

constexpr int kProductVectors = kTileSums >= 24 ? 4 : 1;
constexpr int kProductRows = kTileSums / kProductVectors;

template <class Format>
struct Product {
  const typename Format::X* x;  // [rows][x_stride]
  int64_t x_stride;
  const typename Format::W* w;  // [columns / 16][w_stride]
  int64_t w_stride;
  int64_t steps;
  float* sums;  // [rows][sums_stride]
  int64_t sums_stride;
};

template <class Format, bool kAccumulate, int kRows, int kVectors>
void MultiplyTile(const Product<Format>& m) {
  F32x16 sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = kAccumulate ? Load(m.sums + r * m.sums_stride + v * kLanes) : Zero();
    }
  }
  for (int64_t s = 0; s < m.steps; ++s) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = Format::Step(sum[r][v], m.x[r * m.x_stride + s], m.w[v * m.w_stride + s]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) Store(m.sums + r * m.sums_stride + v * kLanes, sum[r][v]);
  }
}

template <class Format, bool kAccumulate, int kVectors, int kRows = kProductRows>
void MultiplyRows(Product<Format> m, int64_t rows) {
  for (; rows >= kRows; rows -= kRows) {
    MultiplyTile<Format, kAccumulate, kRows, kVectors>(m);
    m.x += kRows * m.x_stride;
    m.sums += kRows * m.sums_stride;
  }
  if constexpr (kRows > 1) {
    if (rows > 0) MultiplyRows<Format, kAccumulate, kVectors, kRows - 1>(m, rows);
  }
}

template <class Format, bool kAccumulate>
void Multiply(Product<Format> m, int64_t rows, int64_t vectors) {
  for (; vectors >= kProductVectors; vectors -= kProductVectors) {
    MultiplyRows<Format, kAccumulate, kProductVectors>(m, rows);
    m.w += kProductVectors * m.w_stride;
    m.sums += kProductVectors * kLanes;
  }
  for (; vectors > 0; --vectors) {
    MultiplyRows<Format, kAccumulate, 1>(m, rows);
    m.w += m.w_stride;
    m.sums += kLanes;
  }
}

// ---- formats: how queries, weights, keys and values become operands of a product

inline F32x16 LoadElements(const float* p) { return Load(p); }
inline F32x16 LoadElements(const Bf16* p) { return LoadBf16(p); }
inline float Element(float value) { return value; }
inline float Element(Bf16 bits) { return WidenBf16(bits); }

// fp32 operands; keys and values are widened when a tile is taken up.
template <class Kv>
struct F32Attention {
  using Element = Kv;
  using X = float;                      // what a row brings to one step
  using W = float[kLanes];              // what sixteen columns bring to it
  static constexpr int64_t kGroup = 1;  // columns of k per step

  static F32x16 Step(F32x16 sum, X x, const W& w) { return Fma(Broadcast(x), Load(w), sum); }
  static void StoreX(X* x, F32x16 v) { Store(x, v); }
  static void SetX(X* x, int64_t i, float value) { x[i] = value; }
  // Sixteen steps of one key.
  static F32x16 LoadSteps(const Kv* p) { return LoadElements(p); }
  static float OneStep(const Kv* p) { return baton::Element(*p); }
  // Values of one block, [keys][head_dim]: out[column / 16][key][column % 16], panels `stride` steps apart.
  static void PackValues(const Kv* v, const Kv* ahead, int64_t head_dim, int64_t keys, W* out, int64_t stride) {
    for (int64_t key = 0; key < kBlockKeys; ++key, v += head_dim, ahead += head_dim) {
      W* panel = out + key;
      for (int64_t i = 0; i < head_dim; i += kLanes, panel += stride) {
        Prefetch(ahead + i);
        if (key >= keys) {
          Store(*panel, Zero());
        } else if (i + kLanes <= head_dim) {
          Store(*panel, LoadElements(v + i));
        } else {
          for (int64_t lane = 0; lane < kLanes; ++lane) {
            (*panel)[lane] = i + lane < head_dim ? baton::Element(v[i + lane]) : 0.0f;
          }
        }
      }
    }
  }
};

#ifdef __AVX512BF16__
// Pairs of bf16; queries and softmax weights are rounded to bf16.
struct PairAttention {
  using Element = Bf16;
  using X = uint32_t;
  using W = uint32_t[kLanes];
  static constexpr int64_t kGroup = 2;

  static F32x16 Step(F32x16 sum, X x, const W& w) {
    const __m512i pair = _mm512_set1_epi32(static_cast<int>(x));
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)pair, (__m512bh)_mm512_loadu_si512(w))};
  }
  static void StoreX(X* x, F32x16 v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(x), (__m256i)_mm512_cvtneps_pbh(v.v));
  }
  static void SetX(X* x, int64_t i, float value) { reinterpret_cast<Bf16*>(x)[i] = RoundToBf16(value); }
  static F32x16 LoadSteps(const Bf16* p) { return {_mm512_loadu_ps(p)}; }
  static float OneStep(const Bf16* p) {
    float pair;
    memcpy(&pair, p, sizeof(pair));
    return pair;
  }
  // Values of one block, [keys][head_dim], those of two keys interleaved in one step:
  // out[column / 16][key / 2][column % 16][key % 2], panels `stride` steps apart.
  static void PackValues(const Bf16* v, const Bf16* ahead, int64_t head_dim, int64_t keys, W* out, int64_t stride) {
    const __m512i low = InterleaveIndex(0), high = InterleaveIndex(kLanes);
    for (int64_t key = 0; key < kBlockKeys; key += 2, v += 2 * head_dim, ahead += 2 * head_dim) {
      W* panel = out + key / 2;
      for (int64_t i = 0; i < head_dim; i += 2 * kLanes, panel += 2 * stride) {
        Prefetch(ahead + i);
        Prefetch(ahead + head_dim + i);
        const int64_t left = head_dim - i;
        const __mmask32 columns = left >= 2 * kLanes ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
        const __m512i first = _mm512_maskz_loadu_epi16(key < keys ? columns : 0, v + i);
        const __m512i second = _mm512_maskz_loadu_epi16(key + 1 < keys ? columns : 0, v + head_dim + i);
        _mm512_storeu_si512(panel[0], _mm512_permutex2var_epi16(first, low, second));
        if (left > kLanes) _mm512_storeu_si512(panel[stride], _mm512_permutex2var_epi16(first, high, second));
      }
    }
  }

 private:
  // Lane 2 i takes element from + i of the first operand, lane 2 i + 1 that of the second.
  static __m512i InterleaveIndex(int from) {
    uint16_t index[2 * kLanes];
    for (int i = 0; i < kLanes; ++i) {
      index[2 * i] = static_cast<uint16_t>(from + i);
      index[2 * i + 1] = static_cast<uint16_t>(from + i + 2 * kLanes);
    }
    return _mm512_loadu_si512(index);
  }
};
#endif

// Keys of one block, [keys][head_dim], transposed: out[step][key]; keys beyond `keys` are zeros. `ahead` is a block
// that is packed later: blocks lie scattered, and unless asked for line by line they arrive when they are needed.
template <class Format>
void PackKeys(const typename Format::Element* k, const typename Format::Element* ahead, int64_t head_dim, int64_t keys,
              typename Format::W* out) {
  const int64_t steps = head_dim / Format::kGroup;
  int64_t s = 0;
  for (; s + 16 <= steps; s += 16) {
    F32x16 rows[kBlockKeys];
#pragma GCC unroll 16
    for (int64_t key = 0; key < kBlockKeys; ++key) {
      const int64_t at = key * head_dim + s * Format::kGroup;
      Prefetch(ahead + at);
      rows[key] = key < keys ? Format::LoadSteps(k + at) : Zero();
    }
    Transpose(rows);
#pragma GCC unroll 16
    for (int64_t i = 0; i < 16; ++i) Store(reinterpret_cast<float*>(out[s + i]), rows[i]);
  }
  for (; s < steps; ++s) {
    for (int64_t key = 0; key < kBlockKeys; ++key) {
      const float step = key < keys ? Format::OneStep(k + key * head_dim + s * Format::kGroup) : 0.0f;
      memcpy(&out[s][key], &step, sizeof(step));
    }
  }
}

// ---- one span of keys for some rows

constexpr int64_t kRowsAtOnce = 2 * kProductRows;

template <class Format>
class Attention {
 public:
  explicit Attention(const AttentionArgs& args)
      : a_(args),
        rows_(args.tokens * args.group),
        width_((args.head_dim + kLanes - 1) / kLanes * kLanes),
        key_steps_(args.head_dim / Format::kGroup) {
    keys_ = reinterpret_cast<W*>(args.scratch);
    values_ = keys_ + kAttentionTileKeys / kLanes * key_steps_;
    queries_ = reinterpret_cast<X*>(values_ + width_ / kLanes * kValueSteps);
  }

  void Run() {
    TakeQueries();
    for (int64_t row = 0; row < rows_; ++row) {
      a_.state.max[row] = -__builtin_inff();
      Store(a_.state.sums + row * 16, Zero());
      for (int64_t i = 0; i < width_; i += 16) Store(a_.state.values + row * width_ + i, Zero());
    }
    const int64_t first = a_.span * kAttentionSpanKeys;
    const int64_t past_last = Position(rows_ - 1) + 1;
    const int64_t end = past_last < first + kAttentionSpanKeys ? past_last : first + kAttentionSpanKeys;
    for (int64_t tile = first; tile < end; tile += kAttentionTileKeys) {
      TakeTile(tile, end - tile < kAttentionTileKeys ? end - tile : kAttentionTileKeys);
      for (int64_t row = 0; row < rows_; row += kRowsAtOnce) {
        AttendRows(tile, row, rows_ - row < kRowsAtOnce ? rows_ - row : kRowsAtOnce);
      }
    }
  }

 private:
  using X = typename Format::X;
  using W = typename Format::W;
  using Element = typename Format::Element;
  static constexpr int64_t kValueSteps = kAttentionTileKeys / Format::kGroup;

  int64_t Position(int64_t row) const { return a_.first_position + row / a_.group; }

  // Queries times scale, as operands.
  void TakeQueries() {
    for (int64_t row = 0; row < rows_; ++row) {
      const float* q = a_.q + row / a_.group * a_.q_stride + row % a_.group * a_.head_dim;
      X* x = queries_ + row * key_steps_;
      int64_t i = 0;
      for (; i + 16 <= a_.head_dim; i += 16) {
        Format::StoreX(x + i / Format::kGroup, Mul(Load(q + i), Broadcast(a_.scale)));
      }
      for (; i < a_.head_dim; ++i) Format::SetX(x, i, q[i] * a_.scale);
    }
  }

  // Packs the blocks of keys [tile, tile + keys).
  void TakeTile(int64_t tile, int64_t keys) {
    for (int64_t key = 0; key < keys; key += kBlockKeys) {
      const int64_t left = a_.kv.written - tile - key;
      const int64_t written = left < kBlockKeys ? left : kBlockKeys;
      const Operands block = BlockAt(a_.kv, tile + key);
      const Operands ahead = Ahead(tile, key);
      PackKeys<Format>(block.k, ahead.k, a_.head_dim, written, keys_ + key / kLanes * key_steps_);
      Format::PackValues(block.v, ahead.v, a_.head_dim, written, values_ + key / Format::kGroup, kValueSteps);
    }
  }

  struct Operands {
    const Element* k;  // [kBlockKeys][head_dim]
    const Element* v;
  };
  static Operands BlockAt(const KvHead& kv, int64_t position) {
    const std::byte* block = kv.blocks[position / kBlockKeys];
    return {reinterpret_cast<const Element*>(block + kv.k_offset),
            reinterpret_cast<const Element*>(block + kv.v_offset)};
  }
  // What is packed one tile after the block at tile + key: of this task or the next, or else the block itself.
  Operands Ahead(int64_t tile, int64_t key) const {
    if (tile + kAttentionTileKeys < a_.kv.written) {
      const int64_t position = tile + kAttentionTileKeys + key;
      return BlockAt(a_.kv, position < a_.kv.written ? position : tile + key);
    }
    const int64_t position = a_.next_span * kAttentionSpanKeys + key;
    return position < a_.next.written ? BlockAt(a_.next, position) : BlockAt(a_.kv, tile + key);
  }

  // Rows [row, row + rows) meet the tile. Keys beyond the last row's position are left out in steps of a block.
  void AttendRows(int64_t tile, int64_t row, int64_t rows) {
    const int64_t visible_to_last = Position(row + rows - 1) - tile + 1;
    if (visible_to_last <= 0) return;
    const int64_t vectors =
        visible_to_last >= kAttentionTileKeys ? kAttentionTileKeys / kLanes : (visible_to_last + kLanes - 1) / kLanes;
    alignas(64) float scores[kRowsAtOnce * kAttentionTileKeys];
    alignas(64) X weights[kRowsAtOnce * kValueSteps];
    Multiply<Format, false>(
        {queries_ + row * key_steps_, key_steps_, keys_, key_steps_, key_steps_, scores, kAttentionTileKeys}, rows,
        vectors);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t visible = Position(row + r) - tile + 1;
      Softmax(row + r, visible, vectors, scores + r * kAttentionTileKeys, weights + r * kValueSteps);
    }
    Multiply<Format, true>({weights, kValueSteps, values_, kValueSteps, vectors * kLanes / Format::kGroup,
                            a_.state.values + row * width_, width_},
                           rows, width_ / kLanes);
  }

  // weights = 2^(score - max) over the keys that the row sees; sums and values so far are scaled to the new max.
  void Softmax(int64_t row, int64_t visible, int64_t vectors, float* scores, X* weights) {
    if (visible <= 0) {
      for (int64_t v = 0; v < vectors; ++v) Format::StoreX(weights + v * (kLanes / Format::kGroup), Zero());
      return;
    }
    for (int64_t key = visible; key < vectors * kLanes; ++key) scores[key] = -__builtin_inff();
    F32x16 top = Load(scores);
    for (int64_t v = 1; v < vectors; ++v) top = Max(top, Load(scores + v * kLanes));
    const float old_max = a_.state.max[row];
    const float tile_max = MaxLane(top);
    const float max = tile_max > old_max ? tile_max : old_max;
    F32x16 total = Zero();
    for (int64_t v = 0; v < vectors; ++v) {
      const F32x16 weight = Exp2(Sub(Load(scores + v * kLanes), Broadcast(max)));
      total = Add(total, weight);
      Format::StoreX(weights + v * (kLanes / Format::kGroup), weight);
    }
    float* sums = a_.state.sums + row * 16;
    if (max == old_max) return Store(sums, Add(Load(sums), total));  // a factor of 1 changes no bit
    const F32x16 rescale = Exp2(Broadcast(old_max - max));
    a_.state.max[row] = max;
    Store(sums, Fma(Load(sums), rescale, total));
    float* values = a_.state.values + row * width_;
    for (int64_t i = 0; i < width_; i += 16) Store(values + i, Mul(Load(values + i), rescale));
  }

  const AttentionArgs& a_;
  const int64_t rows_;
  const int64_t width_;      // head_dim rounded up to 16
  const int64_t key_steps_;  // of a product over head_dim
  W* keys_;                  // [tile keys / 16][key_steps]
  W* values_;                // [width / 16][kValueSteps]
  X* queries_;               // [rows][key_steps]
};

void AttendF32(const AttentionArgs& args) { Attention<F32Attention<float>>(args).Run(); }

void AttendBf16(const AttentionArgs& args) {
#ifdef __AVX512BF16__
  Attention<PairAttention>(args).Run();
#else
  Attention<F32Attention<Bf16>>(args).Run();
#endif
}

void MergeAttention(const AttentionState& into, const AttentionState& from, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const float a = into.max[row], b = from.max[row];
    if (b == -__builtin_inff()) continue;  // this row sees none of the span
    const float max = a > b ? a : b;
    const F32x16 scale_a = Exp2(Broadcast(a - max)), scale_b = Exp2(Broadcast(b - max));
    into.max[row] = max;
    const auto merge = [&](float* x, const float* y) { Store(x, Fma(Load(y), scale_b, Mul(Load(x), scale_a))); };
    merge(into.sums + row * 16, from.sums + row * 16);
    for (int64_t i = 0; i < width; i += 16) merge(into.values + row * width + i, from.values + row * width + i);
  }
}

void FinishAttention(const AttentionState& state, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const F32x16 sum = Broadcast(Sum(Load(state.sums + row * 16)));
    float* values = state.values + row * width;
    for (int64_t i = 0; i < width; i += 16) Store(values + i, Div(Load(values + i), sum));
  }
}

}  // namespace
}  // namespace baton
