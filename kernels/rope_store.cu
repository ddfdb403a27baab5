#include "kernels/launch.cuh"
#include "kernels/mma.cuh"
#include "kernels/rope_store.h"

namespace baton::cuda {
namespace {

constexpr int kWarps = 8;

// One lane's elements of a head: kPairs adjacent elements of each half, so that the lane holds both
// sides of every rotation.
template <int kPairs>
struct Halves {
  float low[kPairs], high[kPairs];
};

template <int kPairs>
__device__ void Load(const Bf16* from, float (&values)[kPairs]) {
  if constexpr (kPairs == 1) {
    values[0] = __bfloat162float(from[0]);
  } else {
    const uint32_t pair = *reinterpret_cast<const uint32_t*>(from);
    values[0] = __uint_as_float(pair << 16);
    values[1] = __uint_as_float(pair & 0xffff0000u);
  }
}

template <int kPairs>
__device__ void Load(const float* from, float (&values)[kPairs]) {
  if constexpr (kPairs == 1) {
    values[0] = from[0];
  } else {
    const float2 pair = *reinterpret_cast<const float2*>(from);
    values[0] = pair.x;
    values[1] = pair.y;
  }
}

template <int kPairs>
__device__ void Store(const float (&values)[kPairs], Bf16* to) {
  if constexpr (kPairs == 1) {
    to[0] = __float2bfloat16_rn(values[0]);
  } else {
    *reinterpret_cast<uint32_t*>(to) = PackBf16(values[0], values[1]);
  }
}

template <int kPairs>
__device__ void Normalise(Halves<kPairs>& x, const Bf16* weight, float epsilon, int lane) {
  constexpr int kHalf = 32 * kPairs;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) squares += x.low[i] * x.low[i] + x.high[i] * x.high[i];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_xor_sync(~0u, squares, offset);
  const float scale = rsqrtf(squares / (2 * kHalf) + epsilon);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    x.low[i] *= scale * __bfloat162float(weight[lane * kPairs + i]);
    x.high[i] *= scale * __bfloat162float(weight[kHalf + lane * kPairs + i]);
  }
}

// Rotates x. `turn`, the rotation, has cosines in `low` and sines in `high`.
template <int kPairs>
__device__ void Turn(Halves<kPairs>& x, const Halves<kPairs>& turn) {
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const float low = x.low[i];
    x.low[i] = low * turn.low[i] - x.high[i] * turn.high[i];
    x.high[i] = x.high[i] * turn.low[i] + low * turn.high[i];
  }
}

template <int kPairs, typename T>
__device__ Halves<kPairs> LoadHalves(const T* from, int lane) {
  Halves<kPairs> halves;
  Load(from + lane * kPairs, halves.low);
  Load(from + (32 + lane) * kPairs, halves.high);
  return halves;
}

// Grid: (rows, heads of q, k and v / kWarps). A warp has one head of one row, and a lane 2 * kPairs
// elements of it.
template <int kHeadDim>
__global__ void RopeStoreKernel(RopeStoreArgs args) {
  constexpr int kPairs = kHeadDim / 64, kHalf = kHeadDim / 2;
  LetNextStart();
  const int lane = threadIdx.x % 32;
  const int head = blockIdx.y * kWarps + threadIdx.x / 32;  // q, then k, then v
  const int kv_heads = args.kv.kv_heads;
  const int64_t row = blockIdx.x;
  const bool is_q = head < args.heads;
  const bool is_v = head >= args.heads + kv_heads;
  // Reads the host's uploads before it waits for the projection.
  const int64_t slot = args.slots[row];
  const auto turn = LoadHalves<kPairs>(args.rope + int64_t{args.positions[row]} * kHeadDim, lane);
  WaitForPrevious();
  if (head >= args.heads + 2 * kv_heads) return;
  Bf16* x = args.qkv + (row * (args.heads + 2 * kv_heads) + head) * kHeadDim;
  auto halves = LoadHalves<kPairs>(x, lane);
  if (!is_v) {
    const Bf16* norm = is_q ? args.q_norm : args.k_norm;
    if (norm != nullptr) Normalise(halves, norm, args.epsilon, lane);
    Turn(halves, turn);
  }
  if (!is_q) {
    if (slot < 0) return;
    const int64_t block = slot / kBlockTokens;
    const int kv_head = head - args.heads - (is_v ? kv_heads : 0);
    x = (is_v ? args.kv.V<Bf16>(block, kv_head) : args.kv.K<Bf16>(block, kv_head)) + slot % kBlockTokens * kHeadDim;
  }
  Store(halves.low, x + lane * kPairs);
  Store(halves.high, x + kHalf + lane * kPairs);
}

}  // namespace

cudaError_t LaunchRopeStore(const RopeStoreArgs& args, cudaStream_t stream) {
  if (args.rows < 1) return cudaErrorInvalidValue;
  const dim3 grid(args.rows, (args.heads + 2 * args.kv.kv_heads + kWarps - 1) / kWarps);
  switch (args.kv.head_dim) {
    case 64:
      return LaunchEarly(RopeStoreKernel<64>, grid, 32 * kWarps, 0, stream, args);
    case 128:
      return LaunchEarly(RopeStoreKernel<128>, grid, 32 * kWarps, 0, stream, args);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace baton::cuda
