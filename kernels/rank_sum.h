// The sum over the ranks of a tensor-parallel group.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace baton::cuda {

// Upper bound on RankParts::ranks.
inline constexpr int kMaxRanks = 16;

// The operands of all ranks, in memory that this device can read.
struct RankParts {
  const float* parts[kMaxRanks] = {};
  int ranks = 0;
};

// Computes out[i] = parts[0][i] + parts[1][i] + ..., in this order for any `count`. Pointers are
// 16-byte aligned, and `count` is a multiple of 4. `out` may be one of the parts.
cudaError_t LaunchRankSum(const RankParts& parts, int64_t count, float* out, cudaStream_t stream);

}  // namespace baton::cuda
