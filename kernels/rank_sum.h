// Sums what the ranks of a tensor-parallel group have computed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace baton::cuda {

inline constexpr int kMaxRanks = 16;

// Each rank's own, in memory that this device reads.
struct RankParts {
  const float* parts[kMaxRanks] = {};
  int ranks = 0;
};

// out[i] = parts[0][i] + parts[1][i] + ..., added in this order whatever `count` is. Pointers are 16-byte aligned and
// `count` is a multiple of 4; `out` may be one of the parts.
cudaError_t LaunchRankSum(const RankParts& parts, int64_t count, float* out, cudaStream_t stream);

}  // namespace baton::cuda
