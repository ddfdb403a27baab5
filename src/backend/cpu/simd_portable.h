// Vectors of sixteen floats as a plain array, for machines without AVX2. Multiply and add round
// separately.
#pragma once

#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/scalar_bf16.h"

namespace baton {
namespace {

struct F32x16 {
  float lane[16];
};

// The size of a projection's tile: at most kTileRows rows, and at most kTileSums vectors of sums.
constexpr int kTileRows = 4;
constexpr int kTileSums = 4;

inline F32x16 Broadcast(float value) {
  F32x16 r;
  for (float& lane : r.lane) lane = value;
  return r;
}
inline F32x16 Zero() { return Broadcast(0); }
inline F32x16 Load(const float* p) {
  F32x16 r;
  memcpy(r.lane, p, sizeof(r.lane));
  return r;
}
inline F32x16 LoadBf16(const Bf16* p) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = WidenBf16(p[i]);
  return r;
}
// Widens the bf16 values in the lower or the upper halves of sixteen words.
inline F32x16 WidenLower(const uint32_t* words) {
  uint32_t bits[16];
  for (int i = 0; i < 16; ++i) bits[i] = words[i] << 16;
  F32x16 r;
  memcpy(r.lane, bits, sizeof(bits));
  return r;
}
inline F32x16 WidenUpper(const uint32_t* words) {
  uint32_t bits[16];
  for (int i = 0; i < 16; ++i) bits[i] = words[i] & 0xffff0000;
  F32x16 r;
  memcpy(r.lane, bits, sizeof(bits));
  return r;
}
inline void Store(float* p, F32x16 v) { memcpy(p, v.lane, sizeof(v.lane)); }
inline void StoreBf16(Bf16* p, F32x16 v) {
  for (int i = 0; i < 16; ++i) p[i] = RoundToBf16(v.lane[i]);
}

#define BATON_LANEWISE(name, expression)                 \
  inline F32x16 name(F32x16 a, F32x16 b) {               \
    F32x16 r;                                            \
    for (int i = 0; i < 16; ++i) r.lane[i] = expression; \
    return r;                                            \
  }
BATON_LANEWISE(Add, a.lane[i] + b.lane[i])
BATON_LANEWISE(Sub, a.lane[i] - b.lane[i])
BATON_LANEWISE(Mul, a.lane[i] * b.lane[i])
BATON_LANEWISE(Div, a.lane[i] / b.lane[i])
BATON_LANEWISE(Max, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i])
BATON_LANEWISE(Min, a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i])
#undef BATON_LANEWISE

// Returns a * b + c.
inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  for (int i = 0; i < 16; ++i) c.lane[i] += a.lane[i] * b.lane[i];
  return c;
}

// Returns 2^n for integral n in [-126, 127].
inline F32x16 PowerOfTwo(F32x16 n) {
  for (float& lane : n.lane) {
    const int32_t bits = (static_cast<int32_t>(lane) + 127) * (1 << 23);
    memcpy(&lane, &bits, sizeof(lane));
  }
  return n;
}

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
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) v.lane[i] += v.lane[i + half];
  }
  return v.lane[0];
}

inline void Prefetch(const void*) {}

}  // namespace
}  // namespace baton
