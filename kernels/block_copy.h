// Copies of KV blocks, or of parts of them, between two buffers. Gather, scatter and push are such
// copies.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace baton::cuda {

// Bytes of a piece of a run. A CTA copies one piece.
inline constexpr int64_t kCopyPieceBytes = 32 << 10;

// Returns the number of pieces of a run of `bytes` bytes.
__host__ __device__ constexpr int64_t CopyPieces(int64_t bytes) {
  return (bytes + kCopyPieceBytes - 1) / kCopyPieceBytes;
}

// A contiguous copy. Offsets are bytes from the start of each buffer.
struct CopyRun {
  int64_t from = 0;
  int64_t to = 0;
  int64_t bytes = 0;  // > 0
  // Number of pieces of all runs before this run.
  int64_t first_piece = 0;
};

// Copies `count` runs, which are in device memory, do not overlap in `to` and have `pieces` pieces
// together. Each buffer is memory of the device, mapped memory of another process, or page-locked
// host memory. Copies are fast if addresses and sizes are multiples of 16.
cudaError_t LaunchCopyRuns(const void* from, const CopyRun* runs, int32_t count, int64_t pieces, void* to,
                           cudaStream_t stream);

}  // namespace baton::cuda
