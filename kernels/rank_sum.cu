#include <algorithm>

#include "kernels/rank_sum.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 512;

__global__ void RankSumKernel(const __grid_constant__ RankParts p, int64_t quads, float* out) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < quads; i += int64_t{gridDim.x} * kThreads) {
    float4 parts[kMaxRanks];
    // All loads, which may come from other devices, are in flight before the first result is
    // needed.
#pragma unroll
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      if (rank < p.ranks) parts[rank] = reinterpret_cast<const float4*>(p.parts[rank])[i];
    }
    float4 sum = parts[0];
#pragma unroll
    for (int rank = 1; rank < kMaxRanks; ++rank) {
      if (rank >= p.ranks) break;
      sum.x += parts[rank].x;
      sum.y += parts[rank].y;
      sum.z += parts[rank].z;
      sum.w += parts[rank].w;
    }
    reinterpret_cast<float4*>(out)[i] = sum;
  }
}

}  // namespace

cudaError_t LaunchRankSum(const RankParts& parts, int64_t count, float* out, cudaStream_t stream) {
  if (parts.ranks < 1 || parts.ranks > kMaxRanks || count < 4 || count % 4 != 0) return cudaErrorInvalidValue;
  const int64_t quads = count / 4;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(kMostBlocks, (quads + kThreads - 1) / kThreads));
  RankSumKernel<<<blocks, kThreads, 0, stream>>>(parts, quads, out);
  return cudaGetLastError();
}

}  // namespace baton::cuda
