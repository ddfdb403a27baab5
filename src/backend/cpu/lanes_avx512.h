// Operations across the lanes of a vector, beside the lane-wise arithmetic of simd_avx512.h.
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

}  // namespace
}  // namespace baton
