#include "kernels/block_copy.h"

namespace baton::cuda {
namespace {

// A CTA copies one piece of one block; every thread has kUnroll loads under way.
constexpr int kThreads = 256;
constexpr int kUnroll = 8;
constexpr int kPieceWords = kThreads * kUnroll;  // of 16 bytes
constexpr int32_t kMaxBlocks = 65535;            // grid limit in y

enum class Direction { kGather, kScatter };

template <Direction kDirection>
__global__ void __launch_bounds__(kThreads) CopyBlocksKernel(const uint4* __restrict__ from, int64_t block_words,
                                                             const int32_t* __restrict__ ids, uint4* __restrict__ to) {
  const int64_t packed_block = blockIdx.y;
  const int64_t slab_block = ids[packed_block];
  const int64_t first = int64_t{blockIdx.x} * kPieceWords + threadIdx.x;
  from += (kDirection == Direction::kGather ? slab_block : packed_block) * block_words + first;
  to += (kDirection == Direction::kGather ? packed_block : slab_block) * block_words + first;
  const auto left = static_cast<int>(min(block_words - first, int64_t{kPieceWords}));  // in the block, from `first`

  uint4 words[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (i * kThreads < left) words[i] = __ldcs(from + i * kThreads);
  }
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (i * kThreads < left) __stcs(to + i * kThreads, words[i]);
  }
}

template <Direction kDirection>
cudaError_t Launch(const void* from, int64_t block_bytes, const int32_t* ids, int32_t count, void* to,
                   cudaStream_t stream) {
  const int64_t words = block_bytes / int64_t{sizeof(uint4)};
  const int64_t pieces = (words + kPieceWords - 1) / kPieceWords;
  if (count < 0 || count > kMaxBlocks || block_bytes <= 0 || block_bytes % sizeof(uint4) != 0) {
    return cudaErrorInvalidValue;
  }
  if (count == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(pieces), count);
  CopyBlocksKernel<kDirection>
      <<<grid, kThreads, 0, stream>>>(static_cast<const uint4*>(from), words, ids, static_cast<uint4*>(to));
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchGatherBlocks(const void* slab, int64_t block_bytes, const int32_t* ids, int32_t count, void* packed,
                               cudaStream_t stream) {
  return Launch<Direction::kGather>(slab, block_bytes, ids, count, packed, stream);
}

cudaError_t LaunchScatterBlocks(const void* packed, int64_t block_bytes, const int32_t* ids, int32_t count, void* slab,
                                cudaStream_t stream) {
  return Launch<Direction::kScatter>(packed, block_bytes, ids, count, slab, stream);
}

}  // namespace baton::cuda
