// Attention over a paged history. It walks tiles of keys with an online softmax (Milakov, arXiv
// 1805.02867) and uses the tiles of FlashAttention (arXiv 2205.14135).
//
// Tiles and spans of keys start at fixed positions, and masked keys contribute exact zeros. The
// order of a row's operations therefore depends only on the row's position and the model's shape.
// It does not depend on the row's chunk, its neighbours or the threads. For positions that no step
// has written yet, scores are masked and values are replaced by zeros.
#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace baton {
namespace {

// ---- Products of a few rows with a tile of blocks. Blocks have the layout of kv/block_layout.h.
// Sixteen adjacent words are the operands of sixteen result columns for one step.

constexpr int kProductVectors = kTileSums >= 24 ? 4 : 1;
constexpr int kProductRows = kTileSums / kProductVectors;

template <class Format>
struct Product {
  const typename Format::X* x;  // [rows][x_stride], operands of all steps
  int64_t x_stride;
  const typename Format::Word* const* blocks;  // [kAttentionTileKeys / 16]
  // [kAttentionTileKeys / 16], the blocks to prefetch meanwhile, line by line.
  const typename Format::Word* const* ahead;
  // The first vector of the result's columns.
  int64_t first_vector;
  int64_t steps;       // within one block
  int64_t step_words;  // distance between steps
  float* sums;         // [rows][sums_stride]
  int64_t sums_stride;
};

// A product whose sixteen columns of scores are the keys of one block.
template <class Format>
struct Scores : Product<Format> {
  static constexpr bool kAccumulates = false;
  int64_t pieces() const { return 1; }
  int64_t Block(int64_t, int64_t vector) const { return this->first_vector + vector; }
  int64_t Offset(int64_t) const { return 0; }  // in words
};

// A product whose sixteen columns of values sum over all blocks, one block after the other.
template <class Format>
struct Values : Product<Format> {
  static constexpr bool kAccumulates = true;
  int64_t block_count;
  int64_t pieces() const { return block_count; }
  int64_t Block(int64_t piece, int64_t) const { return piece; }
  int64_t Offset(int64_t vector) const { return (this->first_vector + vector) * kLanes; }
};

template <class Format, class Kind, int kRows, int kVectors>
void MultiplyTile(const Kind& m) {
  F32x16 sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = Kind::kAccumulates ? Load(m.sums + r * m.sums_stride + v * kLanes) : Zero();
    }
  }
  const typename Format::X* x = m.x;
  const typename Format::X* x3 = kRows > 3 ? m.x + 3 * m.x_stride : x;
  for (int64_t piece = 0; piece < m.pieces(); ++piece) {
    const typename Format::Word* words[kVectors];
    const typename Format::Word* ahead[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      words[v] = m.blocks[m.Block(piece, v)] + m.Offset(v);
      ahead[v] = m.ahead[m.Block(piece, v)] + m.Offset(v);
    }
    for (int64_t s = 0; s < m.steps; ++s) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) Prefetch(ahead[v] + s * m.step_words);
      // Two pointers and multiples of the stride address six rows. Without this statement, gcc
      // keeps six pointers and spills registers.
      asm volatile("" : "+r"(x), "+r"(x3));
#pragma GCC unroll 2
      for (int part = 0; part < Format::kParts; ++part) {
        F32x16 w[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) w[v] = Format::LoadPart(words[v] + s * m.step_words, part);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const typename Format::X* row = (r < 3 ? x : x3) + r % 3 * m.x_stride;
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) sum[r][v] = Format::Step(sum[r][v], *row, part, w[v]);
        }
      }
      ++x;
      ++x3;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) Store(m.sums + r * m.sums_stride + v * kLanes, sum[r][v]);
  }
}

template <class Format, int kVectors, int kRows = kProductRows, class Kind>
void MultiplyRows(Kind m, int64_t rows) {
  for (; rows >= kRows; rows -= kRows) {
    MultiplyTile<Format, Kind, kRows, kVectors>(m);
    m.x += kRows * m.x_stride;
    m.sums += kRows * m.sums_stride;
  }
  if constexpr (kRows > 1) {
    if (rows > 0) MultiplyRows<Format, kVectors, kRows - 1>(m, rows);
  }
}

template <class Format, class Kind>
void Multiply(Kind m, int64_t rows, int64_t vectors) {
  for (; vectors >= kProductVectors; vectors -= kProductVectors) {
    MultiplyRows<Format, kProductVectors>(m, rows);
    m.first_vector += kProductVectors;
    m.sums += kProductVectors * kLanes;
  }
  for (; vectors > 0; --vectors) {
    MultiplyRows<Format, 1>(m, rows);
    ++m.first_vector;
    m.sums += kLanes;
  }
}

// ---- Formats. They turn queries, softmax weights, keys and values into operands of a product.

// fp32 keys and values.
struct F32Attention {
  // The elements of one column that one step multiplies.
  using Word = float;
  // The operand of one row in one step.
  using X = float;
  // Multiplications per step.
  static constexpr int64_t kGroup = 1;

  // Vectors into which a step's words are split.
  static constexpr int kParts = 1;
  static F32x16 LoadPart(const Word* w, int) { return Load(w); }
  static F32x16 Step(F32x16 sum, X x, int, F32x16 w) { return Fma(Broadcast(x), w, sum); }
  static void StoreX(X* x, F32x16 v) { Store(x, v); }
  static void SetX(X* x, int64_t i, float value) { x[i] = value; }
  static Word FirstOnly(Word w) { return w; }
};

#ifndef __AVX512BF16__
// Pairs of bf16 keys and values, which are widened to fp32. All other operands are fp32.
struct Bf16Attention {
  using Word = uint32_t;
  struct X {
    float first, second;
  };
  static constexpr int64_t kGroup = 2;

  static constexpr int kParts = 2;
  static F32x16 LoadPart(const Word* w, int part) { return part == 0 ? WidenLower(w) : WidenUpper(w); }
  static F32x16 Step(F32x16 sum, const X& x, int part, F32x16 w) {
    return Fma(Broadcast(part == 0 ? x.first : x.second), w, sum);
  }
  static void StoreX(X* x, F32x16 v) { Store(&x->first, v); }
  static void SetX(X* x, int64_t i, float value) { (i % 2 == 0 ? x[i / 2].first : x[i / 2].second) = value; }
  static Word FirstOnly(Word w) { return w & 0xffff; }
};
#else
// Pairs of bf16 keys and values. Queries and softmax weights are rounded to bf16.
struct Bf16Attention {
  using Word = uint32_t;
  using X = uint32_t;
  static constexpr int64_t kGroup = 2;

  static constexpr int kParts = 1;
  static F32x16 LoadPart(const Word* w, int) { return {_mm512_loadu_ps(w)}; }
  static F32x16 Step(F32x16 sum, X x, int, F32x16 w) {
    const __m512i pair = _mm512_set1_epi32(static_cast<int>(x));
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)pair, (__m512bh)w.v)};
  }
  static void StoreX(X* x, F32x16 v) { StoreBf16(reinterpret_cast<Bf16*>(x), v); }
  static void SetX(X* x, int64_t i, float value) { reinterpret_cast<Bf16*>(x)[i] = RoundToBf16(value); }
  static Word FirstOnly(Word w) { return w & 0xffff; }
};
#endif

// ---- One span of keys for some rows.

constexpr int64_t kRowsAtOnce = 2 * kProductRows;

template <class Format>
class Attention {
 public:
  explicit Attention(const AttentionArgs& args)
      : a_(args),
        rows_(args.tokens * args.group),
        width_((args.head_dim + kLanes - 1) / kLanes * kLanes),
        key_steps_(args.head_dim / Format::kGroup) {
    copied_values_ = reinterpret_cast<Word*>(args.scratch);
    queries_ = reinterpret_cast<X*>(copied_values_ + kValueSteps * width_);
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
  using Word = typename Format::Word;
  // Steps of a product over the keys of one block.
  static constexpr int64_t kBlockSteps = kBlockKeys / Format::kGroup;
  static constexpr int64_t kTileBlocks = kAttentionTileKeys / kBlockKeys;
  static constexpr int64_t kValueSteps = kTileBlocks * kBlockSteps;

  int64_t Position(int64_t row) const { return a_.first_position + row / a_.group; }

  // Multiplies the queries by the scale and stores them as operands.
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

  // Finds the blocks of keys [tile, tile + keys), and the blocks of the next tile, which the
  // products prefetch.
  void TakeTile(int64_t tile, int64_t keys) {
    for (int64_t key = 0; key < keys; key += kBlockKeys) {
      const int64_t i = key / kBlockKeys;
      keys_[i] = KeysAt(a_.kv, tile + key);
      values_[i] = ValuesAt(a_.kv, tile + key);
      const int64_t written = a_.kv.written - tile - key;
      if (written < kBlockKeys || width_ != a_.head_dim) values_[i] = CopyValues(values_[i], written, i);
      const Ahead ahead = AheadOf(tile, i);
      keys_ahead_[i] = ahead.any ? ahead.keys : keys_[i];
      values_ahead_[i] = ahead.any ? ahead.values : values_[i];
    }
    // A product prefetches only as many blocks as its own tile has, so the rest is prefetched here.
    for (int64_t i = (keys + kBlockKeys - 1) / kBlockKeys; i < kTileBlocks; ++i) {
      const Ahead ahead = AheadOf(tile, i);
      if (!ahead.any) break;
      for (int64_t word = 0; word < kBlockSteps * a_.head_dim; word += 16) {
        Prefetch(ahead.keys + word);
        Prefetch(ahead.values + word);
      }
    }
  }

  static const Word* KeysAt(const KvHead& kv, int64_t position) {
    return reinterpret_cast<const Word*>(kv.blocks[position / kBlockKeys] + kv.k_offset);
  }
  static const Word* ValuesAt(const KvHead& kv, int64_t position) {
    return reinterpret_cast<const Word*>(kv.blocks[position / kBlockKeys] + kv.v_offset);
  }

  // Copies the values of one block to scratch memory. Keys that are not written and the columns
  // from head_dim up to the width become zeros.
  const Word* CopyValues(const Word* values, int64_t written, int64_t block) {
    Word* const copy = copied_values_ + block * kBlockSteps * width_;
    for (int64_t step = 0; step < kBlockSteps; ++step, values += a_.head_dim) {
      Word* out = copy + step * width_;
      const int64_t keys = written - step * Format::kGroup;
      memset(out, 0, static_cast<size_t>(width_) * sizeof(Word));
      if (keys >= Format::kGroup) {
        memcpy(out, values, static_cast<size_t>(a_.head_dim) * sizeof(Word));
      } else if (keys > 0) {
        for (int64_t i = 0; i < a_.head_dim; ++i) out[i] = Format::FirstOnly(values[i]);
      }
    }
    return copy;
  }

  struct Ahead {
    bool any;
    const Word* keys;
    const Word* values;
  };
  // The keys and values one tile later, of this task or the next task. Blocks are scattered in
  // memory, so they arrive in time only if they are prefetched.
  Ahead AheadOf(int64_t tile, int64_t block) const {
    const bool more = tile + kAttentionTileKeys < a_.kv.written;
    const KvHead& kv = more ? a_.kv : a_.next;
    const int64_t first = more ? tile + kAttentionTileKeys : a_.next_span * kAttentionSpanKeys;
    const int64_t position = first + block * kBlockKeys;
    if (position >= kv.written) return {false, nullptr, nullptr};
    return {true, KeysAt(kv, position), ValuesAt(kv, position)};
  }

  // Adds the tile to rows [row, row + rows). Skips whole blocks of keys beyond the last row's
  // position.
  void AttendRows(int64_t tile, int64_t row, int64_t rows) {
    const int64_t visible_to_last = Position(row + rows - 1) - tile + 1;
    if (visible_to_last <= 0) return;
    const int64_t vectors =
        visible_to_last >= kAttentionTileKeys ? kAttentionTileKeys / kLanes : (visible_to_last + kLanes - 1) / kLanes;
    alignas(64) float scores[kRowsAtOnce * kAttentionTileKeys];
    alignas(64) X weights[kRowsAtOnce * kValueSteps];
    Multiply<Format>(Scores<Format>{{.x = queries_ + row * key_steps_,
                                     .x_stride = key_steps_,
                                     .blocks = keys_,
                                     .ahead = row == 0 ? keys_ahead_ : keys_,
                                     .first_vector = 0,
                                     .steps = key_steps_,
                                     .step_words = kBlockKeys,
                                     .sums = scores,
                                     .sums_stride = kAttentionTileKeys}},
                     rows, vectors);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t visible = Position(row + r) - tile + 1;
      Softmax(row + r, visible, vectors, scores + r * kAttentionTileKeys, weights + r * kValueSteps);
    }
    Multiply<Format>(Values<Format>{{.x = weights,
                                     .x_stride = kValueSteps,
                                     .blocks = values_,
                                     .ahead = row == 0 ? values_ahead_ : values_,
                                     .first_vector = 0,
                                     .steps = kBlockSteps,
                                     .step_words = width_,
                                     .sums = a_.state.values + row * width_,
                                     .sums_stride = width_},
                                    vectors},
                     rows, width_ / kLanes);
  }

  // Computes weights = 2^(score - max) over the keys that the row sees. Scales the sums and values
  // so far to the new max.
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
    // A factor of 1 would change no bit.
    if (max == old_max) return Store(sums, Add(Load(sums), total));
    const F32x16 rescale = Exp2(Broadcast(old_max - max));
    a_.state.max[row] = max;
    Store(sums, Fma(Load(sums), rescale, total));
    float* values = a_.state.values + row * width_;
    for (int64_t i = 0; i < width_; i += 16) Store(values + i, Mul(Load(values + i), rescale));
  }

  const AttentionArgs& a_;
  const int64_t rows_;
  const int64_t width_;      // head_dim rounded up to 16
  const int64_t key_steps_;  // steps of a product over head_dim
  const Word* keys_[kTileBlocks] = {};
  const Word* values_[kTileBlocks] = {};  // steps are width_ apart
  const Word* keys_ahead_[kTileBlocks] = {};
  const Word* values_ahead_[kTileBlocks] = {};
  Word* copied_values_;  // [kTileBlocks][kBlockSteps][width]
  X* queries_;           // [rows][key_steps]
};

void AttendF32(const AttentionArgs& args) { Attention<F32Attention>(args).Run(); }
void AttendBf16(const AttentionArgs& args) { Attention<Bf16Attention>(args).Run(); }

void MergeAttention(const AttentionState& into, const AttentionState& from, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const float a = into.max[row], b = from.max[row];
    if (b == -__builtin_inff()) continue;  // this row sees no key of the span
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
