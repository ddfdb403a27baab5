// Prefill attention with wgmma and the copy engine, for compute capability 9.0.
//
// One CTA per SM processes work items, each one tile of queries and one KV head. Its first
// warpgroup produces. One warp makes the copy engine fill rings of K and V tiles. The other warps
// copy queries, one warp for each consumer warpgroup.
//
// A consumer has 64 packed query rows. While its tensor products run, it computes the softmax of
// the previous scores. Consumers start their products in rotation, so that the softmax of one
// consumer runs beside the products of another (FlashAttention-3, arXiv 2407.08608).
#include <cudaTypedefs.h>

#include "kernels/attention_rows.cuh"
#include "kernels/prefill_attention.h"
#include "kernels/wgmma.cuh"

namespace baton::cuda {
namespace {

// The kernel is empty in code for other devices, which lack its instructions.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool kIsSm90a = true;
#else
constexpr bool kIsSm90a = false;
#endif

constexpr int kKeys = 128;  // of a tile of keys
constexpr int kTileBlocks = kKeys / kBlockTokens;
constexpr int kConsumerRows = 64;
constexpr int kWarpgroup = 128;  // threads
constexpr int kConsumerWarps = 4;

template <int kHeadDim>
struct Shape {
  static constexpr int kConsumers = TileRows(PrefillKernel::kWgmma, kHeadDim) / kConsumerRows;
  static constexpr int kThreads = kWarpgroup * (1 + kConsumers);
  // Tiles in each of the rings of K and of V, which take 128 KiB together.
  static constexpr int kStages = 256 / kHeadDim;
  // Registers of a thread. The CTA has 64 Ki registers.
  static constexpr int kProducerRegisters = kConsumers == 2 ? 72 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 216 : 160;

  // The layout of a tile of K or V is [8-key group][64-column half][8 keys][64 columns], swizzled.
  static constexpr int kGroupBytes = 8 * kHeadDim * 2;
  static constexpr int kBlockBytes = kBlockTokens * kHeadDim * 2;
  static constexpr int kTileBytes = kTileBlocks * kBlockBytes;
  static constexpr int kQueryBytes = kConsumerRows * kHeadDim * 2;
};

// Tiles of K or of V that the producer passes to the consumers.
template <int kHeadDim>
struct RingMemory {
  using S = Shape<kHeadDim>;
  alignas(1024) uint8_t tiles[S::kStages][S::kTileBytes];
  // Barriers: the tile can be read.
  uint64_t full[S::kStages];
  // Barriers: all consumers have read the tile.
  uint64_t empty[S::kStages];
};

// One side's view of a ring: the slot of its next tile, and the parity of its present round through
// the slots.
template <int kHeadDim>
struct Ring {
  RingMemory<kHeadDim>& memory;
  int slot = 0;
  uint32_t parity = 0;

  __device__ uint8_t* Tile() const { return memory.tiles[slot]; }
  __device__ uint64_t* Full() const { return &memory.full[slot]; }
  __device__ uint64_t* Empty() const { return &memory.empty[slot]; }
  __device__ void WaitFull() const { Wait(Full(), parity); }
  __device__ void WaitEmpty() const { Wait(Empty(), parity ^ 1); }
  __device__ void Advance() {
    if (++slot == Shape<kHeadDim>::kStages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

template <int kHeadDim>
struct Shared {
  using S = Shape<kHeadDim>;
  RingMemory<kHeadDim> k, v;
  // [64-column half][64 rows][64 columns], swizzled.
  alignas(1024) uint8_t q[S::kConsumers][S::kQueryBytes];
  PackedQueries queries[S::kConsumers];                    // the queries in q
  uint64_t q_full[S::kConsumers], q_empty[S::kConsumers];  // barriers, as for the rings
};

// Returns the CTA's item of a round over the grid. Items are sorted from long to short. Rounds run
// up and down the grid alternately, so that all CTAs get about the same work.
__device__ int32_t ItemOfRound(int32_t round) {
  const int32_t place = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
  return round * gridDim.x + place;
}

// ---- Producers.

constexpr int kNone = -1;

// Copies tokens [0, tokens) of a block with the warp itself, and writes zeros for the others.
template <int kHeadDim>
__device__ void CopyPartOfBlock(uint8_t* to, const Bf16* from, int tokens, int lane) {
  constexpr int kChunks = kHeadDim / 8;
  for (int i = lane; i < kBlockTokens * kChunks; i += 32) {
    const int token = i / kChunks, chunk = i % kChunks;
    const uint32_t group = SharedAddress(to) + token / 8 * Shape<kHeadDim>::kGroupBytes;
    CopyAsync(group + SwizzledChunk<8>(token % 8, chunk), from + token * kHeadDim + chunk * 8, token < tokens);
  }
  CommitCopies();
  WaitCopies<0>();
  FenceAsyncProxy();
  __syncwarp();
}

// Makes the copy engine fill the ring's slot. Lanes [0, kTileBlocks), except lane `skip`, copy one
// block each. A lane's block begins at its `group`, in units of 8 tokens, as in the map.
template <int kHeadDim>
__device__ void CopyTile(const Ring<kHeadDim>& ring, const CUtensorMap* map, int32_t group, int skip, int lane) {
  using S = Shape<kHeadDim>;
  if (lane == 0) ExpectBytes(ring.Full(), S::kTileBytes - (skip == kNone ? 0 : S::kBlockBytes));
  __syncwarp();
  if (lane < kTileBlocks && lane != skip) CopyBox(ring.Tile() + lane * S::kBlockBytes, map, group, ring.Full());
}

// Fills the rings with all K and V tiles that the CTA's items need. Runs in one warp.
template <int kHeadDim>
__device__ void ProduceKeys(Shared<kHeadDim>& shared, const AttentionArgs& args, int32_t items, const CUtensorMap* map,
                            int lane) {
  // A group outside of the slab, which gives zeros, for blocks that do not exist.
  constexpr int32_t kNowhere = -2;
  constexpr int32_t kGroupElements = 8 * kHeadDim;
  const auto block_groups = static_cast<int32_t>(args.kv.block_stride / kGroupElements);
  const auto layer_groups = static_cast<int32_t>(args.kv.layer_offset / kGroupElements);
  Ring<kHeadDim> k = {shared.k}, v = {shared.v};
  for (int32_t round = 0, item; (item = ItemOfRound(round)) < items; ++round) {
    const PackedQueries queries = QueriesOf(args, item);
    const int32_t* table = args.block_tables + queries.tile.table;
    const int32_t blocks = (queries.Keys() + kBlockTokens - 1) / kBlockTokens;
    // Tokens in the last block, if it is not full.
    const int tail = queries.Keys() % kBlockTokens;
    for (int32_t first = 0; first < blocks; first += kTileBlocks) {
      const bool exists = lane < kTileBlocks && first + lane < blocks;
      const int32_t block = exists ? table[first + lane] : 0;
      const int32_t group = block * block_groups + layer_groups + 2 * queries.kv_head;

      k.WaitEmpty();
      CopyTile(k, map, exists ? group : kNowhere, kNone, lane);
      if (lane == 0) Arrive(k.Full());
      k.Advance();

      // V past the last key may be NaN, and 0 * NaN is not 0. The scores of K past the last key are
      // masked.
      const int last = blocks - 1 - first;
      const int part = tail > 0 && last < kTileBlocks ? last : kNone;
      v.WaitEmpty();
      CopyTile(v, map, exists ? group + 2 * args.kv.kv_heads : kNowhere, part, lane);
      if (part != kNone) {
        const int32_t last_block = __shfl_sync(kWholeWarp, block, last);
        CopyPartOfBlock<kHeadDim>(v.Tile() + last * Shape<kHeadDim>::kBlockBytes,
                                  args.kv.V<Bf16>(last_block, queries.kv_head), tail, lane);
      }
      if (lane == 0) Arrive(v.Full());
      v.Advance();
    }
  }
}

// Copies the queries of one consumer. Runs in one warp.
template <int kHeadDim>
__device__ void ProduceQueries(Shared<kHeadDim>& shared, const AttentionArgs& args, int32_t items, int consumer,
                               int lane) {
  for (int32_t round = 0, item; (item = ItemOfRound(round)) < items; ++round) {
    const PackedQueries queries = QueriesOf(args, item);
    Wait(&shared.q_empty[consumer], round % 2 ^ 1);
    CopyQueries<kConsumerRows, kHeadDim, 32>(SharedAddress(shared.q[consumer]), args, queries, kConsumerRows * consumer,
                                             lane);
    CommitCopies();
    WaitCopies<0>();
    FenceAsyncProxy();
    if (lane == 0) shared.queries[consumer] = queries;
    __syncwarp();
    if (lane == 0) Arrive(&shared.q_full[consumer]);
  }
}

// ---- Consumers.

// Starts S = Q K^T.
template <int kHeadDim>
__device__ void StartScores(float (&s)[kKeys / 2], const uint8_t* q, const uint8_t* k) {
  const uint64_t a = MatrixDescriptor(SharedAddress(q), 0, 1024);
  const uint64_t b = MatrixDescriptor(SharedAddress(k), 0, Shape<kHeadDim>::kGroupBytes);
  FenceWgmma();
#pragma unroll
  for (int d = 0; d < kHeadDim; d += 16) {
    const int half = d / 64, bytes = d % 64 * 2;
    const uint64_t a_step = Advance(a, half * kConsumerRows * 128 + bytes);
    const uint64_t b_step = Advance(b, half * 1024 + bytes);
    if (d == 0) {
      WgmmaSharedShared<false>(s, a_step, b_step);
    } else {
      WgmmaSharedShared<true>(s, a_step, b_step);
    }
  }
  CommitWgmma();
}

// Starts O += P V.
template <int kHeadDim>
__device__ void StartValues(float (&o)[kHeadDim / 2], const uint32_t (&p)[kKeys / 4], const uint8_t* v) {
  constexpr int kGroupBytes = Shape<kHeadDim>::kGroupBytes;
  const uint64_t b = MatrixDescriptor(SharedAddress(v), 1024, kGroupBytes);
  FenceWgmma();
#pragma unroll
  for (int key = 0; key < kKeys; key += 16) WgmmaRegistersShared(o, p + key / 4, Advance(b, key / 8 * kGroupBytes));
  CommitWgmma();
}

// The rotation in which consumers start their products. Each consumer passes the permission to the
// next consumer when its own products have started.
template <int kConsumers>
struct Turn {
  int consumer;
  __device__ void Take() const { SyncNamed(1 + consumer, 2 * kWarpgroup); }
  __device__ void Pass() const { ArriveNamed(1 + (consumer + 1) % kConsumers, 2 * kWarpgroup); }
};

// Arrives once for each warp of a consumer, after all its lanes are done.
__device__ void Release(uint64_t* empty, int lane) {
  __syncwarp();
  if (lane == 0) Arrive(empty);
}
template <int kHeadDim>
__device__ void Release(Ring<kHeadDim>& ring, int lane) {
  Release(ring.Empty(), lane);
  ring.Advance();
}

template <int kHeadDim>
__device__ void Consume(Shared<kHeadDim>& shared, const AttentionArgs& args, float scale, int32_t items, int consumer,
                        int warp, int lane) {
  const Turn<Shape<kHeadDim>::kConsumers> turn = {consumer};
  if (consumer == Shape<kHeadDim>::kConsumers - 1) turn.Pass();

  const uint8_t* q = shared.q[consumer];
  // This lane's other row is first_row + 8.
  const int first_row = kConsumerRows * consumer + 16 * warp + lane / 4;
  Ring<kHeadDim> k = {shared.k}, v = {shared.v};
  for (int32_t round = 0; ItemOfRound(round) < items; ++round) {
    Wait(&shared.q_full[consumer], round % 2);
    const PackedQueries queries = shared.queries[consumer];
    const int32_t positions[2] = {queries.Position(first_row), queries.Position(first_row + 8)};
    const int32_t least_position = queries.Position(kConsumerRows * consumer);
    const auto mask = [&](float(&s)[kKeys / 2], int32_t first) {
      if (first + kKeys > least_position + 1) MaskLaterKeys(s, {positions[0] - first, positions[1] - first}, lane);
    };

    // Called when the product with the keys from `first` on has run.
    const auto release_scores = [&](int32_t first) {
      Release(k, lane);
      if (first + kKeys >= queries.Keys()) Release(&shared.q_empty[consumer], lane);
    };

    SoftmaxRows softmax;
    float s[kKeys / 2];
    float o[kHeadDim / 2] = {};
    float rescale[2];
    uint32_t p[kKeys / 4];

    k.WaitFull();
    StartScores<kHeadDim>(s, q, k.Tile());
    WaitWgmma<0>();
    PinRegisters(s);
    release_scores(0);
    mask(s, 0);
    softmax.Update(s, scale, rescale);
    PackProbabilities(p, s);

    // Here p has the probabilities of the tile before `first`, which o does not yet contain.
    if (kKeys < queries.Keys()) k.WaitFull();
    for (int32_t first = kKeys; first < queries.Keys(); first += kKeys) {
      turn.Take();
      StartScores<kHeadDim>(s, q, k.Tile());
      v.WaitFull();
      StartValues<kHeadDim>(o, p, v.Tile());
      turn.Pass();

      WaitWgmma<1>();
      PinRegisters(s);
      release_scores(first);
      mask(s, first);
      softmax.Update(s, scale, rescale);
      // The softmax runs beside the products only if it comes before the next WaitWgmma. The
      // assembler (ptxas) moves WaitWgmma up to the last branch, and moves everything on which the
      // branch does not depend below it. The branch therefore depends on the sums, which are never
      // negative.
      if (first + kKeys < queries.Keys() && !(softmax.sum[0] + softmax.sum[1] < 0)) k.WaitFull();

      WaitWgmma<0>();
      PinRegisters(o);
      Release(v, lane);
      Rescale(o, rescale);
      PackProbabilities(p, s);
    }

    v.WaitFull();
    StartValues<kHeadDim>(o, p, v.Tile());
    WaitWgmma<0>();
    PinRegisters(o);
    Release(v, lane);
    StoreRows<kHeadDim>(args, queries, first_row, o, softmax, lane);
  }
  if (consumer == 0) turn.Take();  // takes the last permission that another consumer passed on
}

template <int kHeadDim>
__global__ void __launch_bounds__(Shape<kHeadDim>::kThreads, 1)
    PrefillWgmmaKernel(AttentionArgs args, float scale, int32_t items, const __grid_constant__ KvTensorMap map) {
  if (!kIsSm90a) return;
  using S = Shape<kHeadDim>;
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<kHeadDim>*>(memory);

  if (threadIdx.x == 0) {
    for (RingMemory<kHeadDim>* ring : {&shared.k, &shared.v}) {
      for (uint64_t& full : ring->full) InitBarrier(&full, 1);
      for (uint64_t& empty : ring->empty) InitBarrier(&empty, kConsumerWarps * S::kConsumers);
    }
    for (int i = 0; i < S::kConsumers; ++i) {
      InitBarrier(&shared.q_full[i], 1);
      InitBarrier(&shared.q_empty[i], kConsumerWarps);
    }
    FenceBarrierInit();
  }
  __syncthreads();

  // Equal in all lanes. The compiler detects this only with the shuffle.
  const int warp = __shfl_sync(kWholeWarp, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  if (warp < kConsumerWarps) {
    GiveRegisters<S::kProducerRegisters>();
    if (warp == 0) {
      ProduceKeys<kHeadDim>(shared, args, items, &map.map, lane);
    } else if (warp <= S::kConsumers) {
      ProduceQueries<kHeadDim>(shared, args, items, warp - 1, lane);
    }
  } else {
    TakeRegisters<S::kConsumerRegisters>();
    Consume<kHeadDim>(shared, args, scale, items, warp / kConsumerWarps - 1, warp % kConsumerWarps, lane);
  }
}

template <int kHeadDim>
cudaError_t Launch(const AttentionArgs& args, int32_t tiles, const KvTensorMap& map, cudaStream_t stream) {
  const auto kernel = PrefillWgmmaKernel<kHeadDim>;
  constexpr int kBytes = sizeof(Shared<kHeadDim>);
  cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != cudaSuccess) return status;
  int device = 0, processors = 0;
  if (status = cudaGetDevice(&device); status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  const int32_t items = tiles * args.kv.kv_heads;
  const int ctas = items < processors ? items : processors;
  kernel<<<ctas, Shape<kHeadDim>::kThreads, kBytes, stream>>>(args, ScoreScale(kHeadDim), items, map);
  return cudaGetLastError();
}

}  // namespace

cudaError_t MakeKvTensorMap(const PagedKv& kv, KvTensorMap* map) {
  if ((kv.head_dim != 64 && kv.head_dim != 128) || kv.block_stride % kv.HeadStride() != 0) return cudaErrorInvalidValue;
  void* function = nullptr;
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault);
  if (status != cudaSuccess) return status;
  if (function == nullptr) return cudaErrorNotSupported;

  // The slab as [8-token group][64-column half][token][column]. A box is one head's K or V in one
  // block.
  const auto halves = static_cast<uint32_t>(kv.head_dim / 64);
  const auto row_bytes = static_cast<uint64_t>(kv.head_dim * 2);
  const auto groups = static_cast<uint64_t>(kv.blocks * kv.block_stride / (8 * kv.head_dim));
  const uint64_t sizes[4] = {64, 8, halves, groups};
  const uint64_t strides[3] = {row_bytes, 128, 8 * row_bytes};
  const uint32_t box[4] = {64, 8, halves, kBlockTokens / 8};
  const uint32_t steps[4] = {1, 1, 1, 1};
  const CUresult result = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function)(
      &map->map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, kv.slab, sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t LaunchPrefillWgmma(const AttentionArgs& args, int32_t tiles, const KvTensorMap& map, cudaStream_t stream) {
  return args.kv.head_dim == 64 ? Launch<64>(args, tiles, map, stream) : Launch<128>(args, tiles, map, stream);
}

}  // namespace baton::cuda
