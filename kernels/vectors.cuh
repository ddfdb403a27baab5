// Sixteen bytes at a time: eight bf16, or four floats twice.
#pragma once

#include "kernels/paged_kv.h"

namespace baton::cuda {

struct alignas(16) Bf16x8 {
  __nv_bfloat162 pairs[4];
};

struct Float8 {
  float values[8];
};

__device__ inline Float8 Load8(const Bf16* from) {
  const Bf16x8 packed = *reinterpret_cast<const Bf16x8*>(from);
  Float8 wide;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(packed.pairs[i]);
    wide.values[2 * i] = pair.x;
    wide.values[2 * i + 1] = pair.y;
  }
  return wide;
}

__device__ inline Float8 Load8(const float* from) {
  const float4 low = reinterpret_cast<const float4*>(from)[0];
  const float4 high = reinterpret_cast<const float4*>(from)[1];
  return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

__device__ inline void Store8(const Float8& wide, Bf16* to) {
  Bf16x8 packed;
#pragma unroll
  for (int i = 0; i < 4; ++i) packed.pairs[i] = __floats2bfloat162_rn(wide.values[2 * i], wide.values[2 * i + 1]);
  *reinterpret_cast<Bf16x8*>(to) = packed;
}

__device__ inline void Store8(const Float8& wide, float* to) {
  const auto& v = wide.values;
  reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

}  // namespace baton::cuda
