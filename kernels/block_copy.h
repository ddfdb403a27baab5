// Moves whole KV blocks between their places in a slab and a contiguous buffer.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace baton::cuda {

// Block i of `packed` [count][block_bytes] and block ids[i] of `slab` [blocks][block_bytes]: gather reads the slab,
// scatter writes it, where ids are distinct. `ids` are in device memory; slab and packed may also be pinned host memory
// that is mapped into the device. Block sizes and addresses are multiples of 16; at most 65535 blocks at once.
cudaError_t LaunchGatherBlocks(const void* slab, int64_t block_bytes, const int32_t* ids, int32_t count, void* packed,
                               cudaStream_t stream);
cudaError_t LaunchScatterBlocks(const void* packed, int64_t block_bytes, const int32_t* ids, int32_t count, void* slab,
                                cudaStream_t stream);

}  // namespace baton::cuda
