// Prefill attention with mma.sync and cp.async, for every device from sm_80 on, and the choice
// between both kernels.
//
// One CTA has 64 packed query rows of one KV head, 16 per warp. It walks their keys in tiles of 64.
// The next tile of keys is copied while the current tile is multiplied.
#include "kernels/attention_rows.cuh"
#include "kernels/prefill_attention.h"

namespace baton::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = 16 * kWarps;  // of a tile of queries
constexpr int kKeys = 64;           // of a tile of keys
static_assert(kRows == TileRows(PrefillKernel::kMma, 64) && kRows == TileRows(PrefillKernel::kMma, 128));

template <int kHeadDim>
constexpr int kTileBytes = 64 * kHeadDim * 2;  // of Q, K or V
static_assert(kRows == 64 && kKeys == 64);
template <int kHeadDim>
constexpr int kSharedBytes = 5 * kTileBytes<kHeadDim>;  // Q, and twice K and V

// Copies K and V of keys [first, first + kKeys) to adjacent swizzled tiles, asynchronously. Writes
// zeros for keys past the last key of the tile's queries. Such keys may have no block, or their
// memory may hold NaN.
template <int kHeadDim>
__device__ void CopyKeys(uint32_t to, const AttentionArgs& args, const PackedQueries& queries, int first) {
  constexpr int kChunks = kHeadDim / 8;
  const int32_t* table = args.block_tables + queries.tile.table;
#pragma unroll
  for (int i = 0; i < kKeys * kChunks / kThreads; ++i) {
    const int index = i * kThreads + threadIdx.x;
    const int row = index / kChunks, chunk = index % kChunks;
    const int key = first + row;
    const bool exists = key < queries.Keys();
    const int64_t block = exists ? table[key / kBlockTokens] : 0;
    const int offset = key % kBlockTokens * kHeadDim + chunk * 8;
    const uint32_t chunk_at = to + SwizzledChunk<kKeys>(row, chunk);
    CopyAsync(chunk_at, args.kv.K<Bf16>(block, queries.kv_head) + offset, exists);
    CopyAsync(chunk_at + kTileBytes<kHeadDim>, args.kv.V<Bf16>(block, queries.kv_head) + offset, exists);
  }
}

// Computes s = Q K^T for a warp's 16 rows.
template <int kHeadDim>
__device__ void MultiplyScores(float (&s)[kKeys / 2], uint32_t q, uint32_t k, int warp, int lane) {
#pragma unroll
  for (float& x : s) x = 0;
#pragma unroll
  for (int d = 0; d < kHeadDim; d += 16) {
    // Matrices: rows 0-7 and rows 8-15 of columns [d, d + 8), and the same rows of columns [d + 8,
    // d + 16).
    uint32_t a[4];
    LoadMatrices(a, q + SwizzledChunk<kRows>(16 * warp + lane % 16, d / 8 + lane / 16));
#pragma unroll
    for (int key = 0; key < kKeys; key += 16) {
      // Matrices: columns [d, d + 8) and [d + 8, d + 16) of keys 0-7, and the same of keys 8-15.
      uint32_t b[4];
      LoadMatrices(b, k + SwizzledChunk<kKeys>(key + lane / 16 * 8 + lane % 8, d / 8 + lane / 8 % 2));
      Mma(s + key / 2, a, b[0], b[1]);
      Mma(s + key / 2 + 4, a, b[2], b[3]);
    }
  }
}

// Computes o += P V for a warp's 16 rows.
template <int kHeadDim>
__device__ void MultiplyValues(float (&o)[kHeadDim / 2], const uint32_t (&p)[kKeys / 4], uint32_t v, int lane) {
#pragma unroll
  for (int key = 0; key < kKeys; key += 16) {
#pragma unroll
    for (int d = 0; d < kHeadDim; d += 16) {
      // Matrices: keys 0-7 and keys 8-15 of columns [d, d + 8), and the same of columns [d + 8, d +
      // 16).
      uint32_t b[4];
      LoadTransposed(b, v + SwizzledChunk<kKeys>(key + lane % 16, d / 8 + lane / 16));
      Mma(o + d / 2, p + key / 4, b[0], b[1]);
      Mma(o + d / 2 + 4, p + key / 4, b[2], b[3]);
    }
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) PrefillMmaKernel(AttentionArgs args, float scale) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t q = SharedAddress(memory);
  const uint32_t kv = q + kTileBytes<kHeadDim>;  // [2][k|v]
  constexpr uint32_t kStageBytes = 2 * kTileBytes<kHeadDim>;

  const PackedQueries queries = QueriesOf(args, blockIdx.x);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = 16 * warp + lane / 4;  // this lane's other row is first_row + 8

  CopyQueries<kRows, kHeadDim, kThreads>(q, args, queries, 0, threadIdx.x);
  CopyKeys<kHeadDim>(kv, args, queries, 0);
  CommitCopies();

  SoftmaxRows softmax;
  float o[kHeadDim / 2] = {};
  for (int first = 0, stage = 0; first < queries.Keys(); first += kKeys, stage ^= 1) {
    if (first + kKeys < queries.Keys())
      CopyKeys<kHeadDim>(kv + (stage ^ 1) * kStageBytes, args, queries, first + kKeys);
    CommitCopies();
    WaitCopies<1>();
    __syncthreads();

    float s[kKeys / 2];
    const uint32_t k = kv + stage * kStageBytes;
    MultiplyScores<kHeadDim>(s, q, k, warp, lane);
    if (first + kKeys > queries.Position(16 * warp)) {
      MaskLaterKeys(s, {queries.Position(first_row) - first, queries.Position(first_row + 8) - first}, lane);
    }
    float rescale[2];
    softmax.Update(s, scale, rescale);
    uint32_t p[kKeys / 4];
    PackProbabilities(p, s);
    Rescale(o, rescale);
    MultiplyValues<kHeadDim>(o, p, k + kTileBytes<kHeadDim>, lane);
    __syncthreads();  // before the next copies overwrite this stage
  }
  StoreRows<kHeadDim>(args, queries, first_row, o, softmax, lane);
}

template <int kHeadDim>
cudaError_t LaunchMma(const AttentionArgs& args, int32_t tiles, cudaStream_t stream) {
  const auto kernel = PrefillMmaKernel<kHeadDim>;
  constexpr int kBytes = kSharedBytes<kHeadDim>;
  const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != cudaSuccess) return status;
  kernel<<<tiles * args.kv.kv_heads, kThreads, kBytes, stream>>>(args, ScoreScale(kHeadDim));
  return cudaGetLastError();
}

bool Valid(const AttentionArgs& args) {
  const PagedKv& kv = args.kv;
  return (kv.head_dim == 64 || kv.head_dim == 128) && kv.kv_heads > 0 && args.heads > 0 &&
         args.heads % kv.kv_heads == 0 && args.q_stride % 8 == 0 && kv.block_stride % kv.HeadStride() == 0 &&
         kv.layer_offset % kv.HeadStride() == 0;
}

}  // namespace

cudaError_t LaunchPrefillAttention(const AttentionArgs& args, int32_t tiles, PrefillKernel kernel,
                                   const KvTensorMap* map, cudaStream_t stream) {
  if (!Valid(args) || QueriesPerTile(kernel, args.kv.head_dim, args.heads / args.kv.kv_heads) == 0) {
    return cudaErrorInvalidValue;
  }
  if (tiles == 0) return cudaSuccess;
  if (kernel == PrefillKernel::kWgmma)
    return map ? LaunchPrefillWgmma(args, tiles, *map, stream) : cudaErrorInvalidValue;
  return LaunchPrefillMma(args, tiles, stream);
}

cudaError_t LaunchPrefillMma(const AttentionArgs& args, int32_t tiles, cudaStream_t stream) {
  return args.kv.head_dim == 64 ? LaunchMma<64>(args, tiles, stream) : LaunchMma<128>(args, tiles, stream);
}

}  // namespace baton::cuda
