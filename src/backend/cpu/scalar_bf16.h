// Conversions of a single bf16. They are in an anonymous namespace like everything that kernels
// use, so that each instruction set gets its own copy (kernels.h).
#pragma once

#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels.h"

namespace baton {
namespace {

inline float WidenBf16(Bf16 bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

inline Bf16 RoundToBf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  if (value != value) return static_cast<Bf16>((bits >> 16) | 0x40);  // a quiet NaN
  return static_cast<Bf16>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace
}  // namespace baton
