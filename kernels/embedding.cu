#include "kernels/embedding.h"
#include "kernels/launch.cuh"
#include "kernels/vectors.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

// Grid: rows. Each thread moves eight elements at a time.
template <typename From, typename To>
__global__ void GatherRowsKernel(const From* from, const int32_t* ids, int32_t columns, To* to) {
  LetNextStart();
  const From* source = from + int64_t{ids[blockIdx.x]} * columns;
  To* target = to + int64_t{blockIdx.x} * columns;
  for (int i = 8 * threadIdx.x; i < columns; i += 8 * kThreads) Store8(Load8(source + i), target + i);
}

template <typename From, typename To>
cudaError_t Launch(const From* from, const int32_t* ids, int32_t rows, int32_t columns, To* to, cudaStream_t stream) {
  if (rows < 1 || columns % 8 != 0) return cudaErrorInvalidValue;
  GatherRowsKernel<<<rows, kThreads, 0, stream>>>(from, ids, columns, to);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchEmbedding(const Bf16* table, const int32_t* tokens, int32_t rows, int32_t columns, float* out,
                            cudaStream_t stream) {
  return Launch(table, tokens, rows, columns, out, stream);
}

cudaError_t LaunchGatherRows(const float* from, const int32_t* ids, int32_t rows, int32_t columns, float* to,
                             cudaStream_t stream) {
  return Launch(from, ids, rows, columns, to, stream);
}

cudaError_t LaunchGatherRows(const Bf16* from, const int32_t* ids, int32_t rows, int32_t columns, Bf16* to,
                             cudaStream_t stream) {
  return Launch(from, ids, rows, columns, to, stream);
}

}  // namespace baton::cuda
