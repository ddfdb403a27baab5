// Moves KV blocks, or parts of them, between their places in two buffers: gather, scatter and push are all this.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace baton::cuda {

// A CTA copies one piece of a run.
inline constexpr int64_t kCopyPieceBytes = 32 << 10;

__host__ __device__ constexpr int64_t CopyPieces(int64_t bytes) {
  return (bytes + kCopyPieceBytes - 1) / kCopyPieceBytes;
}

// Offsets from the start of each buffer.
struct CopyRun {
  int64_t from = 0;
  int64_t to = 0;
  int64_t bytes = 0;        // > 0
  int64_t first_piece = 0;  // pieces of the runs before it
};

// Runs [count], in device memory, do not overlap in `to` and have `pieces` pieces together. The buffers are the
// device's, another process's that is mapped here, or pinned host memory. Fast where addresses and sizes are multiples
// of 16.
cudaError_t LaunchCopyRuns(const void* from, const CopyRun* runs, int32_t count, int64_t pieces, void* to,
                           cudaStream_t stream);

}  // namespace baton::cuda
