// Attention of one query per sequence over its paged history. Histories are split, so that few long ones fill the
// device too, and the parts are merged in a fixed order: a row's bits depend on its own query, keys and values, and on
// where its history is cut.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/history_splits.h"
#include "kernels/paged_kv.h"

namespace baton::cuda {

// What of a launch runs at once on the current device.
cudaError_t MakeDecodeGrid(int32_t kv_heads, int32_t head_dim, DecodeGrid* grid);

// Bytes of workspace for so many partials. Zero it once; a launch leaves it ready for the next.
int64_t DecodeWorkspaceBytes(int32_t heads, int32_t kv_heads, int32_t head_dim, int64_t partials);

// Every slice of `args` has rows == 1: its query, at position `start`, attends to [0, start]. At most 16 query heads
// share a KV head. `splits` [count] are in device memory and may end in padding; nothing that stays fixed in a captured
// graph depends on what they hold. The workspace is aligned to 16 bytes.
cudaError_t LaunchDecodeAttention(const AttentionArgs& args, const HistorySplit* splits, int32_t count, void* workspace,
                                  cudaStream_t stream);

}  // namespace baton::cuda
