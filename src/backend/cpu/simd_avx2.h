// Vectors of sixteen floats as two AVX registers.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/scalar_bf16.h"

namespace baton {
namespace {

struct F32x16 {
  __m256 lo, hi;
};

// The size of a projection's tile: at most kTileRows rows, and at most kTileSums vectors of sums.
// The sums take 12 of the 16 registers.
constexpr int kTileRows = 6;
constexpr int kTileSums = 6;

inline F32x16 Broadcast(float value) {
  const __m256 v = _mm256_set1_ps(value);
  return {v, v};
}
inline F32x16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline __m256 WidenBf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline F32x16 LoadBf16(const Bf16* p) {
  return {WidenBf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          WidenBf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
// Widens the bf16 values in the lower or the upper halves of sixteen words.
inline F32x16 WidenLower(const uint32_t* words) {
  const auto* p = reinterpret_cast<const __m256i*>(words);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(p), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(p + 1), 16))};
}
inline F32x16 WidenUpper(const uint32_t* words) {
  const auto* p = reinterpret_cast<const __m256i*>(words);
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000));
  return {_mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(p), upper)),
          _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(p + 1), upper))};
}
inline void Store(float* p, F32x16 v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
// Returns rounded bf16 bits in the low half of each 32-bit lane.
inline __m256i RoundedBits(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  return _mm256_blendv_epi8(rounded, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}
inline void StoreBf16(Bf16* p, F32x16 v) {
  // In the order of lanes 0-3, 8-11, 4-7, 12-15.
  const __m256i packed = _mm256_packus_epi32(RoundedBits(v.lo), RoundedBits(v.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0b11011000));
}

inline F32x16 Add(F32x16 a, F32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline F32x16 Sub(F32x16 a, F32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline F32x16 Mul(F32x16 a, F32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline F32x16 Div(F32x16 a, F32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline F32x16 Max(F32x16 a, F32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline F32x16 Min(F32x16 a, F32x16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }

// Returns a * b + c.
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

// Returns 2^n for integral n in [-126, 127].
inline __m256 PowerOfTwo(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
inline F32x16 PowerOfTwo(F32x16 n) { return {PowerOfTwo(n.lo), PowerOfTwo(n.hi)}; }

// x = integer + fraction, for 2^x. x is clamped to [-127, 127]. PowerOfTwo(-127) is 0, because its
// exponent field is 0.
struct Exponent {
  F32x16 integer, fraction;  // fraction in [-1/2, 1/2]
};
inline Exponent SplitExponent(F32x16 x) {
  x = Max(Min(x, Broadcast(127)), Broadcast(-127));
  const F32x16 magic = Broadcast(0x1.8p23f);  // at this size a float holds integers only
  const F32x16 integer = Sub(Add(x, magic), magic);
  return {integer, Sub(x, integer)};
}
inline F32x16 ScaleByPowerOfTwo(F32x16 value, const Exponent& e) { return Mul(value, PowerOfTwo(e.integer)); }

// Sums in one fixed order: folds halves until one lane is left.
inline float Sum(F32x16 v) {
  const __m256 eight = _mm256_add_ps(v.lo, v.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace baton
