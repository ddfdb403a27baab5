// Vectors of sixteen floats as one AVX-512 register.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/scalar_bf16.h"

namespace baton {
namespace {

struct F32x16 {
  __m512 v;
};

// The size of a projection's tile: at most kTileRows rows, and at most kTileSums vectors of sums.
// The sums take 24 of the 32 registers, which is enough to hide the latency of two FMA pipes.
constexpr int kTileRows = 12;
constexpr int kTileSums = 24;

inline F32x16 Broadcast(float value) { return {_mm512_set1_ps(value)}; }
inline F32x16 Zero() { return {_mm512_setzero_ps()}; }
inline F32x16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline F32x16 LoadBf16(const Bf16* p) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16))};
}
// Widens the bf16 values in the lower or the upper halves of sixteen words.
inline F32x16 WidenLower(const uint32_t* words) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(words), 16))};
}
inline F32x16 WidenUpper(const uint32_t* words) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(words), upper))};
}
inline void Store(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
#ifdef __AVX512BF16__
// Denormals become zeros.
inline void StoreBf16(Bf16* p, F32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(a.v));
}
#else
inline void StoreBf16(Bf16* p, F32x16 a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i nan = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i result = _mm512_mask_blend_epi32(is_nan, rounded, nan);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(result));
}
#endif

inline F32x16 Add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 Sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 Mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 Div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32x16 Max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32x16 Min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }

// Returns a * b + c.
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }

// x = integer + fraction, for 2^x. The fraction of an infinity is 0.
struct Exponent {
  F32x16 integer, fraction;  // fraction in [-1/2, 1/2]
};
inline Exponent SplitExponent(F32x16 x) {
  return {{_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)},
          {_mm512_reduce_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}};
}
inline F32x16 ScaleByPowerOfTwo(F32x16 value, const Exponent& e) { return {_mm512_scalef_ps(value.v, e.integer.v)}; }

// Sums in one fixed order: folds halves until one lane is left.
inline float Sum(F32x16 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace baton
