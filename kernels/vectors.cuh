// Loads, stores and arithmetic of eight elements at a time: 16 bytes of bf16, or twice 16 bytes of
// floats.
#pragma once

#include "kernels/paged_kv.h"

namespace baton::cuda {

struct Float8 {
  float values[8];
};

__device__ inline Float8 Widen(uint4 packed) {
  const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
  Float8 wide;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    wide.values[2 * i] = __uint_as_float(pairs[i] << 16);
    wide.values[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
  }
  return wide;
}

// Loads 16 bytes as one word, and Store8 stores them as one word. For a struct of bf16 pairs, the
// compiler would emit four loads or stores.
__device__ inline Float8 Load8(const Bf16* from) { return Widen(*reinterpret_cast<const uint4*>(from)); }

__device__ inline Float8 Load8(const float* from) {
  const float4 low = reinterpret_cast<const float4*>(from)[0];
  const float4 high = reinterpret_cast<const float4*>(from)[1];
  return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

__device__ inline void Store8(const Float8& wide, Bf16* to) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(wide.values[2 * i], wide.values[2 * i + 1]);
    pairs[i] = reinterpret_cast<const uint32_t&>(pair);
  }
  *reinterpret_cast<uint4*>(to) = {pairs[0], pairs[1], pairs[2], pairs[3]};
}

__device__ inline void Store8(const Float8& wide, float* to) {
  const auto& v = wide.values;
  reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

// Uses the fast exponential and division. The error is a few units in the last place of a float,
// below the precision of bf16.
__device__ inline float Silu(float x) { return __fdividef(x, 1 + __expf(-x)); }

}  // namespace baton::cuda
