// Attention of one query per sequence over its paged history. A history is split, so that few long ones fill the device
// too, and the parts are merged in a fixed order: a row's bits depend on its own query, keys and values alone.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/paged_kv.h"

namespace baton::cuda {

// Histories are cut at multiples of SplitKeys, which depends on their own length only.
inline constexpr int32_t kMinSplitKeys = 256;
inline constexpr int32_t kMaxSplits = 32;

__host__ __device__ constexpr int32_t SplitKeys(int32_t keys) {
  constexpr int32_t kKeysAtMinimum = kMinSplitKeys * kMaxSplits;
  return (keys + kKeysAtMinimum - 1) / kKeysAtMinimum * kMinSplitKeys;
}
__host__ __device__ constexpr int32_t SplitCount(int32_t keys) {
  return (keys + SplitKeys(keys) - 1) / SplitKeys(keys);
}

// Keys [begin, end) of a slice.
struct alignas(16) HistorySplit {
  int32_t slice = -1;  // -1: padding
  int32_t begin = 0;
  int32_t end = 0;
  int32_t partial = -1;  // where in the workspace its result goes; -1: it is the whole history and needs none
};

// The splits of slices of one row each, longest first (in blocks); the splits of one slice have partials one after another.
// Returns how many partials there are. Keeps the vector's memory.
int32_t PlanHistorySplits(std::span<const AttentionSlice> slices, std::vector<HistorySplit>& splits);

// Bytes of workspace for so many partials. Zero it once; a launch leaves it ready for the next.
int64_t DecodeWorkspaceBytes(int32_t heads, int32_t kv_heads, int32_t head_dim, int64_t partials);

// Every slice of `args` has rows == 1: its query, at position `start`, attends to [0, start]. At most 16 query heads
// share a KV head. `splits` [count] are in device memory and may end in padding; nothing that stays fixed in a captured
// graph depends on what they hold. The workspace is aligned to 16 bytes.
cudaError_t LaunchDecodeAttention(const AttentionArgs& args, const HistorySplit* splits, int32_t count, void* workspace,
                                  cudaStream_t stream);

}  // namespace baton::cuda
