#include "kernels/block_copy.h"

namespace baton::cuda {
namespace {

// A CTA copies one piece. Every thread has kUnroll loads in flight.
constexpr int kThreads = 256;
constexpr int kUnroll = 8;
static_assert(kCopyPieceBytes == kThreads * kUnroll * sizeof(uint4));

__device__ void CopyWords(const uint4* __restrict__ from, int count, uint4* __restrict__ to) {
  uint4 words[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    const int at = i * kThreads + threadIdx.x;
    if (at < count) words[i] = __ldcs(from + at);
  }
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    const int at = i * kThreads + threadIdx.x;
    if (at < count) __stcs(to + at, words[i]);
  }
}

// Returns the last run that begins at or before `piece`.
__device__ CopyRun FindRun(const CopyRun* runs, int count, int64_t piece) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (runs[middle].first_piece <= piece ? low : high) = middle;
  }
  return runs[low];
}

__global__ void __launch_bounds__(kThreads)
    CopyRunsKernel(const char* __restrict__ from, const CopyRun* __restrict__ runs, int count, char* __restrict__ to) {
  const CopyRun run = FindRun(runs, count, blockIdx.x);
  const int64_t at = (blockIdx.x - run.first_piece) * kCopyPieceBytes;
  from += run.from + at;
  to += run.to + at;
  const auto bytes = static_cast<int>(min(run.bytes - at, kCopyPieceBytes));
  if ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) | bytes) % sizeof(uint4) == 0) {
    CopyWords(reinterpret_cast<const uint4*>(from), bytes / static_cast<int>(sizeof(uint4)),
              reinterpret_cast<uint4*>(to));
    return;
  }
  for (int i = threadIdx.x; i < bytes; i += kThreads) to[i] = from[i];
}

}  // namespace

cudaError_t LaunchCopyRuns(const void* from, const CopyRun* runs, int32_t count, int64_t pieces, void* to,
                           cudaStream_t stream) {
  constexpr int64_t kMostPieces = (int64_t{1} << 31) - 1;  // limit of a grid
  if (count < 0 || pieces < count || pieces > kMostPieces) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  CopyRunsKernel<<<static_cast<unsigned>(pieces), kThreads, 0, stream>>>(static_cast<const char*>(from), runs, count,
                                                                         static_cast<char*>(to));
  return cudaGetLastError();
}

}  // namespace baton::cuda
