// Moves across lanes, beside the arithmetic of simd_avx2.h.
#pragma once

#include "backend/cpu/simd_avx2.h"

namespace baton {
namespace {

inline float MaxLane(F32x16 v) {
  const __m256 eight = _mm256_max_ps(v.lo, v.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Lane j of row i becomes lane i of row j, for eight rows of eight.
inline void Transpose8x8(__m256 r[8]) {
  __m256 a[8];  // pairs of rows interleaved, then pairs of pairs
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  __m256 b[8];
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}

// Lane j of row i becomes lane i of row j.
inline void Transpose(F32x16 rows[16]) {
  __m256 quarter[4][8];  // upper left, lower left, upper right, lower right
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    quarter[0][i] = rows[i].lo;
    quarter[1][i] = rows[8 + i].lo;
    quarter[2][i] = rows[i].hi;
    quarter[3][i] = rows[8 + i].hi;
  }
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) Transpose8x8(quarter[q]);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    rows[i] = {quarter[0][i], quarter[1][i]};
    rows[8 + i] = {quarter[2][i], quarter[3][i]};
  }
}

}  // namespace
}  // namespace baton
