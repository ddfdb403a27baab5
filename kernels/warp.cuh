// Reductions across the lanes of a warp, in a fixed order.
#pragma once

namespace baton::cuda {

// Returns the larger value, or NaN if either value is NaN.
__device__ inline float MaxOrNan(float a, float b) {
  float max;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(max) : "f"(a), "f"(b));
  return max;
}

// Returns the combination of all lanes' values to every lane.
template <typename T, typename Combine>
__device__ T WarpReduce(T value, Combine combine) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = combine(value, __shfl_xor_sync(~0u, value, mask));
  return value;
}

// Returns the sum of the values of lanes [0, lane].
template <typename T>
__device__ T WarpPrefixSum(T value, int lane) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const T other = __shfl_up_sync(~0u, value, distance);
    if (lane >= distance) value += other;
  }
  return value;
}

}  // namespace baton::cuda
