// The work of both prefill kernels on the query rows of a tile, around the two matrix products.
//
// A tile's rows are packed. The first rows are the `group` heads of its first query that share the
// KV head, the next rows are those of its second query, and so on. A warp has 16 rows.
//
// An accumulator of n columns, S = Q K^T or O = P V, is an array of n / 2 floats per lane, in the
// layout of mma.sync and wgmma. Element 4 j + 2 h + e is that of
//   row lane / 4 + 8 h, column 8 j + 2 (lane % 4) + e.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/mma.cuh"
#include "kernels/paged_kv.h"

namespace baton::cuda {

// The mask of all lanes of a warp.
inline constexpr unsigned kWholeWarp = 0xffffffff;

// Returns the factor that turns q k into a logarithm to base 2.
inline float ScoreScale(int32_t head_dim) { return 1.4426950408889634 / std::sqrt(static_cast<double>(head_dim)); }

// The queries of a tile that attend to one KV head.
struct PackedQueries {
  AttentionSlice tile;
  int32_t kv_head;
  int32_t group;
  // 2^16 / group, rounded up. row * reciprocal >> 16 is row / group while row * group < 2^16.
  int32_t reciprocal;

  __device__ int32_t Rows() const { return tile.rows * group; }
  // Number of keys that the last row attends to.
  __device__ int32_t Keys() const { return tile.start + tile.rows; }
  __device__ int32_t Query(int32_t row) const { return row * reciprocal >> 16; }
  __device__ int32_t Position(int32_t row) const { return tile.start + Query(row); }
  // Returns the elements from the start of q or out to the head of a packed row. `stride` is the
  // elements from one batch row to the next.
  __device__ int64_t Offset(int32_t row, int64_t stride, int32_t head_dim) const {
    const int32_t query = Query(row);
    return (tile.first_row + query) * stride + (kv_head * group + row - query * group) * head_dim;
  }
};

// Returns item i of a batch. The items are all KV heads of tile 0, then all KV heads of tile 1, and
// so on.
__device__ inline PackedQueries QueriesOf(const AttentionArgs& args, int32_t item) {
  const int32_t group = args.heads / args.kv.kv_heads;
  return {args.slices[item / args.kv.kv_heads], item % args.kv.kv_heads, group, (0xffff + group) / group};
}

// Copies packed rows [first, first + kRows) to a swizzled tile, asynchronously. Rows past the last
// row become zeros.
template <int kRows, int kHeadDim, int kThreads>
__device__ inline void CopyQueries(uint32_t to, const AttentionArgs& args, const PackedQueries& queries, int32_t first,
                                   int thread) {
  constexpr int kChunks = kHeadDim / 8;
  for (int i = thread; i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool exists = first + row < queries.Rows();
    const int64_t offset = exists ? queries.Offset(first + row, args.q_stride, kHeadDim) + chunk * 8 : 0;
    CopyAsync(to + SwizzledChunk<kRows>(row, chunk), args.q + offset, exists);
  }
}

// Sets the scores of keys past a row's own position to -infinity. `positions` and keys count from
// this tile's first key.
template <int kElements>
__device__ inline void MaskLaterKeys(float (&s)[kElements], const int32_t (&positions)[2], int lane) {
  const int32_t last[2] = {positions[0] - 2 * (lane % 4), positions[1] - 2 * (lane % 4)};
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (i / 4 * 8 + i % 2 > last[i / 2 % 2]) s[i] = -INFINITY;
  }
}

// The online softmax (Milakov, arXiv 1805.02867) of a lane's two rows.
struct SoftmaxRows {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};  // sum over this lane's columns

  // Replaces the scores of a tile of keys by 2^(scale (score - max)). Returns in `rescale` the
  // factors that adapt earlier results to the new maximum. A tile of masked keys changes no bit,
  // because its factors are 1 and its terms are 0. The maximum is finite, because every row meets
  // key 0 in its first tile.
  template <int kElements>
  __device__ void Update(float (&s)[kElements], float scale, float (&rescale)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top[2] = {max[h], max[h]};
#pragma unroll
      for (int i = 2 * h; i < kElements; i += 4) {
        top[0] = fmaxf(top[0], s[i]);
        top[1] = fmaxf(top[1], s[i + 1]);
      }
      const float new_max = QuadMax(fmaxf(top[0], top[1]));
      rescale[h] = Exp2((max[h] - new_max) * scale);
      max[h] = new_max;
      const float offset = new_max * scale;
      float terms[2] = {0, 0};
#pragma unroll
      for (int i = 2 * h; i < kElements; i += 4) {
        s[i] = Exp2(fmaf(s[i], scale, -offset));
        s[i + 1] = Exp2(fmaf(s[i + 1], scale, -offset));
        terms[0] += s[i];
        terms[1] += s[i + 1];
      }
      sum[h] = fmaf(sum[h], rescale[h], terms[0] + terms[1]);
    }
  }

  __device__ float Sum(int h) const {
    const float pair = sum[h] + __shfl_xor_sync(kWholeWarp, sum[h], 1);
    return pair + __shfl_xor_sync(kWholeWarp, pair, 2);
  }

 private:
  // Returns the maximum over the four lanes that share a row.
  __device__ static float QuadMax(float x) {
    x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, 1));
    return fmaxf(x, __shfl_xor_sync(kWholeWarp, x, 2));
  }
};

template <int kElements>
__device__ inline void Rescale(float (&o)[kElements], const float (&factors)[2]) {
  // x * 1 is x, and most tiles do not change the maximum of any row of a warp.
  if (!__any_sync(kWholeWarp, factors[0] != 1 || factors[1] != 1)) return;
#pragma unroll
  for (int i = 0; i < kElements; ++i) o[i] *= factors[i / 2 % 2];
}

// Packs P as the A operand of the second product. Elements [4 k, 4 k + 4) are the fragment of keys
// [16 k, 16 k + 16).
template <int kElements>
__device__ inline void PackProbabilities(uint32_t (&p)[kElements / 2], const float (&s)[kElements]) {
#pragma unroll
  for (int i = 0; i < kElements / 2; ++i) p[i] = PackBf16(s[2 * i], s[2 * i + 1]);
}

// Transposes the words of four lanes: w[i] becomes the word w[l % 4] of lane i, where l is this
// lane.
__device__ inline void TransposeQuad(uint32_t (&w)[4], int lane) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const uint32_t other = __shfl_xor_sync(kWholeWarp, upper ? w[i] : w[i | bit], bit);
      if (upper) {
        w[i] = other;
      } else {
        w[i | bit] = other;
      }
    }
  }
}

// Writes O / sum of a lane's two packed rows, `first_row` and `first_row` + 8, in 16-byte stores.
template <int kHeadDim>
__device__ inline void StoreRows(const AttentionArgs& args, const PackedQueries& queries, int32_t first_row,
                                 const float (&o)[kHeadDim / 2], const SoftmaxRows& softmax, int lane) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int32_t row = first_row + 8 * h;
    const float inverse = 1 / softmax.Sum(h);
    Bf16* out = args.out + queries.Offset(row, int64_t{args.heads} * kHeadDim, kHeadDim) + lane % 4 * 8;
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; j += 4) {
      // The columns of four groups of 8, and after the transposition all of group j + lane % 4.
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = o + 4 * (j + i) + 2 * h;
        // Adding 0 turns -0 into 0. Otherwise, the sign of a zero could depend on masked tiles.
        words[i] = PackBf16(fmaf(pair[0], inverse, 0.0f), fmaf(pair[1], inverse, 0.0f));
      }
      TransposeQuad(words, lane);
      if (row < queries.Rows()) {
        *reinterpret_cast<uint4*>(out + j * 8) = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }
}

}  // namespace baton::cuda
