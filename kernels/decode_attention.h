// Attention of one query per sequence over its paged history. Histories are cut into splits, so
// that a few long histories also fill the device. The results of the splits are merged in a fixed
// order. A row's bits depend on its own query, keys and values, and on the cuts of its history.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/history_splits.h"
#include "kernels/paged_kv.h"

namespace baton::cuda {

// Sets `grid` to the CTAs that run at once on the current device.
cudaError_t MakeDecodeGrid(int32_t kv_heads, int32_t head_dim, DecodeGrid* grid);

// Returns the bytes of workspace for `partials` partials. The caller zeroes the workspace once.
// Each launch leaves it ready for the next launch.
int64_t DecodeWorkspaceBytes(int32_t heads, int32_t kv_heads, int32_t head_dim, int64_t partials);

// Enqueues the attention. Every slice of `args` has rows == 1. Its query, at position `start`,
// attends to [0, start]. At most 16 query heads share a KV head.
//
// `splits` has `count` entries in device memory and may end in padding. The launch itself depends
// only on `count`, so a captured launch serves other contents of `splits`. The workspace is aligned
// to 16 bytes.
cudaError_t LaunchDecodeAttention(const AttentionArgs& args, const HistorySplit* splits, int32_t count, void* workspace,
                                  cudaStream_t stream);

}  // namespace baton::cuda
