// Moves across lanes, beside the arithmetic of simd_avx512.h.
#pragma once

#include "backend/cpu/simd_avx512.h"

namespace baton {
namespace {

inline float MaxLane(F32x16 a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Lane j of row i becomes lane i of row j.
inline void Transpose(F32x16 rows[16]) {
  __m512 a[16];  // within each four rows and each 128 bits, a 4x4 transpose
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512 lo01 = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
    const __m512 hi01 = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
    const __m512 lo23 = _mm512_unpacklo_ps(rows[i + 2].v, rows[i + 3].v);
    const __m512 hi23 = _mm512_unpackhi_ps(rows[i + 2].v, rows[i + 3].v);
    a[i] = _mm512_shuffle_ps(lo01, lo23, 0x44);
    a[i + 1] = _mm512_shuffle_ps(lo01, lo23, 0xee);
    a[i + 2] = _mm512_shuffle_ps(hi01, hi23, 0x44);
    a[i + 3] = _mm512_shuffle_ps(hi01, hi23, 0xee);
  }
  // Then a 4x4 transpose of 128-bit pieces: column c of quarter q is row 4 * q + c.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 lo01 = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x44);
    const __m512 hi01 = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xee);
    const __m512 lo23 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x44);
    const __m512 hi23 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xee);
    rows[c].v = _mm512_shuffle_f32x4(lo01, lo23, 0x88);
    rows[4 + c].v = _mm512_shuffle_f32x4(lo01, lo23, 0xdd);
    rows[8 + c].v = _mm512_shuffle_f32x4(hi01, hi23, 0x88);
    rows[12 + c].v = _mm512_shuffle_f32x4(hi01, hi23, 0xdd);
  }
}

}  // namespace
}  // namespace baton
