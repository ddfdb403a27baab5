#include <algorithm>
#include <cmath>

#include "kernels/decode_attention.h"
#include "kernels/launch.cuh"
#include "kernels/mma.cuh"

namespace baton::cuda {
namespace {

// docs/design/decode_attention.md explains this design.
//
// A CTA processes units, each one split of one KV head. The unit's blocks are dealt to the
// attending warps, which merge their results at the end of the unit. The CTA that finishes a
// history last merges its partials in the merging warp, or after its own last unit in the attending
// warps.
//
// A warp computes transposed products in m16n8k16 tiles:
//   S^T [16 keys, heads] = K [16 keys, head_dim] Q^T
//   O^T [head_dim, heads] += V^T [head_dim, 16 keys] P^T
constexpr int kWarps = 4;  // attending warps
constexpr int kAttendThreads = kWarps * 32;
constexpr int kThreads = kAttendThreads + 32;
constexpr int kStages = 3;  // of one block's K and V
constexpr int kTileHeads = 8;
constexpr int kMaxGroup = 16;
constexpr float kLog2E = 1.44269504f;

template <int kHeadDim>
struct Block {
  static constexpr int kRowBytes = kHeadDim * sizeof(Bf16);
  static constexpr int kBytes = kBlockTokens * kRowBytes;  // of K or V
  static constexpr int kStageBytes = 2 * kBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;  // of a warp
  // The CTAs of an SM take 192 KB of shared memory together.
  static constexpr int kCtasPerSm = 256 / kHeadDim;
  // log2(e) / sqrt(head_dim)
  static constexpr float kScale = kLog2E * (kHeadDim == 64 ? 0.125f : 0.0883883476f);

  // Returns the byte offset of 16 bytes in a block. The eight keys that ldmatrix reads at once are
  // in different banks.
  static __device__ int Offset(int key, int chunk) { return key * kRowBytes + (chunk ^ (key & 7)) * 16; }
};

struct DecodeParams {
  AttentionArgs args;
  const HistorySplit* splits;
  int units;  // splits * kv_heads
  float* workspace;
};

// The layout of one partial of one KV head in the workspace.
struct PartialLayout {
  int group;
  int head_dim;

  // values [group][head_dim], max [group], sum [group], and a counter of the arrived splits. Only
  // the counter in the first split's partial is used.
  __host__ __device__ int Max() const { return group * head_dim; }
  __host__ __device__ int Sum() const { return Max() + group; }
  __host__ __device__ int Arrivals() const { return Sum() + group; }
  __host__ __device__ int Floats() const { return (Arrivals() + 4) / 4 * 4; }
};

__device__ uint32_t Transpose(uint32_t matrix) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(matrix));
  return transposed;
}

__device__ float Low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ float High(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// Returns false past the last unit.
__device__ bool ReadUnit(const DecodeParams& p, int unit, HistorySplit& split, int& kv_head) {
  if (unit >= p.units) return false;
  const auto* words = reinterpret_cast<const int4*>(p.splits + unit / p.args.kv.kv_heads);
  const int4 range = __ldg(words);
  const int4 parts = __ldg(words + 1);
  split = {range.x, range.y, range.z, range.w, parts.x, parts.y};
  kv_head = unit % p.args.kv.kv_heads;
  return split.slice >= 0;
}

__device__ int Blocks(const HistorySplit& split) { return (split.end - split.begin + kBlockTokens - 1) / kBlockTokens; }

// Copies a warp's blocks into its ring, in the order in which the warp attends to them.
template <int kHeadDim>
class BlockReader {
 public:
  __device__ BlockReader(const DecodeParams& params, int warp, int lane) : p_(params), warp_(warp), lane_(lane) {
    Advance();
  }

  // Starts copying the next block, if there is one, into a stage. Keys past the split's end become
  // zeros, because the memory may contain NaN. Commits one group.
  __device__ void Fetch(uint32_t stage) {
    if (left_) {
      const int keys = split_.end - split_.begin - block_ * kBlockTokens;
      CopyBlock(stage, p_.args.kv.K<Bf16>(id_, kv_head_), keys);
      CopyBlock(stage + Block<kHeadDim>::kBytes, p_.args.kv.V<Bf16>(id_, kv_head_), keys);
      Advance();
    }
    CommitCopies();
  }

 private:
  __device__ void CopyBlock(uint32_t shared, const Bf16* global, int keys) {
    constexpr int kChunks = kHeadDim / 8;
#pragma unroll
    for (int i = 0; i < kBlockTokens * kChunks / 32; ++i) {
      const int key = i * (32 / kChunks) + lane_ / kChunks;
      CopyAsync(shared + Block<kHeadDim>::Offset(key, lane_ % kChunks), global + (i * 32 + lane_) * 8, key < keys);
    }
  }

  // Moves to this warp's next block, in this unit or in a later unit of its CTA. Loads the block's
  // id one Fetch ahead of its use.
  __device__ void Advance() {
    block_ += kWarps;
    while (block_ >= blocks_) {
      left_ = ReadUnit(p_, unit_, split_, kv_head_);
      if (!left_) return;
      unit_ += gridDim.x;
      blocks_ = Blocks(split_);
      block_ = warp_;
      table_ = p_.args.block_tables + p_.args.slices[split_.slice].table + split_.begin / kBlockTokens;
    }
    id_ = __ldg(table_ + block_);
  }

  const DecodeParams& p_;
  const int warp_;
  const int lane_;
  int unit_ = blockIdx.x;  // the unit after the present one
  HistorySplit split_;
  int kv_head_ = 0;
  const int32_t* table_ = nullptr;
  int blocks_ = 0;
  int block_ = 0;  // next to fetch, in [0, blocks_)
  int id_ = 0;     // the block's id in the slab
  bool left_ = true;
};

template <int kHeadDim, int kTiles>
struct Query {
  // Q^T [head_dim, heads]. Columns past the group are zero.
  uint32_t b[kHeadDim / 16][kTiles][2];

  __device__ void Load(const Bf16* q, int group, int lane) {
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int head = tile * kTileHeads + lane / 4;
        const auto* pairs = reinterpret_cast<const uint32_t*>(q + head * kHeadDim + step * 16) + lane % 4;
        b[step][tile][0] = head < group ? pairs[0] : 0;
        b[step][tile][1] = head < group ? pairs[4] : 0;
      }
    }
  }
};

// A warp's results for a unit.
template <int kHeadDim, int kTiles>
struct State {
  float values[kHeadDim / 16][kTiles][4];  // O^T, not normalised
  float max[kTiles][2];                    // of scores, by the lane's columns
  float sum[kTiles][2];                    // of weights of the lane's own keys

  __device__ void Clear() {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        max[tile][column] = -INFINITY;
        sum[tile][column] = 0;
      }
#pragma unroll
      for (auto& rows : values) rows[tile][0] = rows[tile][1] = rows[tile][2] = rows[tile][3] = 0;
    }
  }
};

// Computes S^T of a block.
template <int kHeadDim, int kTiles>
__device__ void Score(uint32_t k, const Query<kHeadDim, kTiles>& query, int lane, float (&scores)[kTiles][4]) {
#pragma unroll
  for (auto& tile : scores) tile[0] = tile[1] = tile[2] = tile[3] = 0;
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    uint32_t a[4];
    LoadMatrices(a, k + Block<kHeadDim>::Offset(lane % 16, 2 * step + lane / 16));
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) Mma(scores[tile], a, query.b[step][tile][0], query.b[step][tile][1]);
  }
}

// Turns one tile of S^T into weights P^T, and rescales `state` to the new maximum. Keys from `keys`
// on get the weight 0.
template <int kHeadDim, int kTiles>
__device__ void Weigh(float (&scores)[4], int keys, int lane, int tile, State<kHeadDim, kTiles>& state,
                      uint32_t (&weights)[2]) {
  float scale[2];
#pragma unroll
  for (int column = 0; column < 2; ++column) {
    float& upper = scores[column];
    float& lower = scores[column + 2];
    upper = lane / 4 < keys ? upper * Block<kHeadDim>::kScale : -INFINITY;
    lower = lane / 4 + 8 < keys ? lower * Block<kHeadDim>::kScale : -INFINITY;
    float max = fmaxf(upper, lower);
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, mask));
    max = fmaxf(max, state.max[tile][column]);
    scale[column] = Exp2(state.max[tile][column] - max);
    state.max[tile][column] = max;
    upper = Exp2(upper - max);
    lower = Exp2(lower - max);
  }
  const uint32_t upper = PackBf16(scores[0], scores[1]);
  const uint32_t lower = PackBf16(scores[2], scores[3]);
  // Sums the rounded weights, which are also the ones that are multiplied.
  state.sum[tile][0] = state.sum[tile][0] * scale[0] + Low(upper) + Low(lower);
  state.sum[tile][1] = state.sum[tile][1] * scale[1] + High(upper) + High(lower);
  weights[0] = Transpose(upper);
  weights[1] = Transpose(lower);
#pragma unroll
  for (auto& rows : state.values) {
    rows[tile][0] *= scale[0];
    rows[tile][1] *= scale[1];
    rows[tile][2] *= scale[0];
    rows[tile][3] *= scale[1];
  }
}

// Computes O^T += V^T P^T.
template <int kHeadDim, int kTiles>
__device__ void Gather(uint32_t v, const uint32_t (&weights)[kTiles][2], int lane, State<kHeadDim, kTiles>& state) {
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    uint32_t a[4];
    LoadTransposed(a, v + Block<kHeadDim>::Offset(lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) Mma(state.values[step][tile], a, weights[tile][0], weights[tile][1]);
  }
}

template <int kHeadDim, int kTiles>
__device__ void Attend(uint32_t stage, int keys, const Query<kHeadDim, kTiles>& query, int lane,
                       State<kHeadDim, kTiles>& state) {
  float scores[kTiles][4];
  Score(stage, query, lane, scores);
  uint32_t weights[kTiles][2];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) Weigh(scores[tile], keys, lane, tile, state, weights[tile]);
  Gather(stage + Block<kHeadDim>::kBytes, weights, lane, state);
}

// Data that the warps of a CTA exchange at the end of a unit.
struct Exchange {
  const float* values[kWarps];  // [kTiles * kTileHeads][head_dim], see ValueIndex
  float max[kWarps][kMaxGroup];
  float sum[kWarps][kMaxGroup];
  bool merge;  // whether the history of the CTA's last unit must be merged
};

// Returns the index of a head's value in a warp's results. Pairs of heads are in different banks.
template <int kHeadDim>
__device__ int ValueIndex(int head, int dim) {
  return head * kHeadDim + (dim ^ (head / 2 % 4 * 8));
}

template <int kHeadDim, int kTiles>
__device__ void Publish(State<kHeadDim, kTiles>& state, int warp, int lane, float* values, Exchange& exchange) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const int head = tile * kTileHeads + lane % 4 * 2 + column;
      float sum = state.sum[tile][column];
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) sum += __shfl_xor_sync(~0u, sum, mask);
      if (lane < 4) {
        exchange.max[warp][head] = state.max[tile][column];
        exchange.sum[warp][head] = sum;
      }
#pragma unroll
      for (int step = 0; step < kHeadDim / 16; ++step) {
        const int dim = step * 16 + lane / 4;
        values[ValueIndex<kHeadDim>(head, dim)] = state.values[step][tile][column];
        values[ValueIndex<kHeadDim>(head, dim + 8)] = state.values[step][tile][column + 2];
      }
    }
  }
  if (lane == 0) exchange.values[warp] = values;
}

// Four values of one head, merged. All roundings are explicit, so that one warp and several warps
// merge partials to the same bits.
struct Merged {
  float4 values = {0, 0, 0, 0};
  float max = -INFINITY;
  float sum = 0;

  __device__ void RaiseMax(float to) {
    const float scale = Exp2(max - to);
    values = {scale * values.x, scale * values.y, scale * values.z, scale * values.w};
    sum *= scale;
    max = to;
  }
  __device__ void Add(float4 other, float other_sum, float scale) {
    values.x = fmaf(scale, other.x, values.x);
    values.y = fmaf(scale, other.y, values.y);
    values.z = fmaf(scale, other.z, values.z);
    values.w = fmaf(scale, other.w, values.w);
    sum = fmaf(scale, other_sum, sum);
  }
  __device__ uint2 Normalised() const {
    const float scale = 1 / sum;
    return {PackBf16(scale * values.x, scale * values.y), PackBf16(scale * values.z, scale * values.w)};
  }
};

template <int kHeadDim>
__device__ Merged MergeWarps(const Exchange& exchange, int head, int dim) {
  Merged merged;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) merged.max = fmaxf(merged.max, exchange.max[warp][head]);
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    const float* values = exchange.values[warp] + ValueIndex<kHeadDim>(head, dim);
    merged.Add(*reinterpret_cast<const float4*>(values), exchange.sum[warp][head],
               Exp2(exchange.max[warp][head] - merged.max));
  }
  return merged;
}

// The destination of a unit's results.
struct Results {
  int group;
  PartialLayout layout;
  Bf16* out;       // [group][head_dim]
  int splits;      // splits of the history
  int64_t stride;  // floats from partial to partial of the history
  float* first;    // first partial of the history
  float* partial;  // the unit's partial; null for a whole history

  __device__ Results(const DecodeParams& p, const HistorySplit& split, int kv_head, const AttentionSlice& slice) {
    const PagedKv& kv = p.args.kv;
    group = p.args.heads / kv.kv_heads;
    layout = {group, kv.head_dim};
    out = p.args.out + (int64_t{slice.first_row} * p.args.heads + kv_head * group) * kv.head_dim;
    splits = split.splits;
    stride = int64_t{kv.kv_heads} * layout.Floats();
    first = p.workspace + (split.partial - split.place) * stride + kv_head * layout.Floats();
    partial = split.partial < 0 ? nullptr : first + split.place * stride;
  }
};

// Merges the attending warps' published results into the output or the unit's partial. Runs in the
// attending warps.
template <int kHeadDim>
__device__ void WriteUnit(const Exchange& exchange, const Results& results) {
  for (int i = threadIdx.x * 4; i < results.group * kHeadDim; i += kAttendThreads * 4) {
    const int head = i / kHeadDim;
    const int dim = i % kHeadDim;
    const Merged merged = MergeWarps<kHeadDim>(exchange, head, dim);
    if (results.partial == nullptr) {
      *reinterpret_cast<uint2*>(results.out + i) = merged.Normalised();
      continue;
    }
    *reinterpret_cast<float4*>(results.partial + i) = merged.values;
    if (dim == 0) {
      results.partial[results.layout.Max() + head] = merged.max;
      results.partial[results.layout.Sum() + head] = merged.sum;
    }
  }
}

// ---- The merging warp.

// Counts a partial that this CTA wrote before a barrier. Returns true in the CTA that is counted
// last for the history. Its warp then sees all partials.
__device__ bool Arrive(const Results& results, int lane) {
  bool last = false;
  if (lane == 0) {
    auto* arrivals = reinterpret_cast<unsigned*>(results.first + results.layout.Arrivals());
    unsigned before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(arrivals) : "memory");
    last = before == static_cast<unsigned>(results.splits) - 1;
    if (last) *arrivals = 0;
  }
  return __shfl_sync(~0u, last, 0);
}

// Merges a history's partials in order into the output. Runs in one warp or in the attending warps.
// A thread loads several partials together, and bypasses L1, because other CTAs wrote them.
template <int kHeadDim, int kThreads>
__device__ void MergePartials(const Results& results, int thread) {
  constexpr int kTogether = 4;
  constexpr int kColumns = kThreads == 32 ? kHeadDim / 32 : 1;  // of 4 values per thread
  const int end = results.group * kHeadDim;
  for (int begin = thread * 4; begin < end; begin += kColumns * kThreads * 4) {
    Merged merged[kColumns];
    for (int split = 0; split < results.splits; split += kTogether) {
      float4 values[kTogether][kColumns];
      float sums[kTogether][kColumns];
      float maxima[kTogether][kColumns];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const float* partial = results.first + min(split + i, results.splits - 1) * results.stride;
#pragma unroll
        for (int column = 0; column < kColumns; ++column) {
          const int at = min(begin + column * kThreads * 4, end - 4);
          values[i][column] = __ldcg(reinterpret_cast<const float4*>(partial + at));
          sums[i][column] = __ldcg(partial + results.layout.Sum() + at / kHeadDim);
          const float max = __ldcg(partial + results.layout.Max() + at / kHeadDim);
          maxima[i][column] = split + i < results.splits ? max : -INFINITY;
        }
      }
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        float max = merged[column].max;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) max = fmaxf(max, maxima[i][column]);
        merged[column].RaiseMax(max);
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          merged[column].Add(values[i][column], sums[i][column], Exp2(maxima[i][column] - max));
        }
      }
    }
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      const int at = begin + column * kThreads * 4;
      if (at < end) *reinterpret_cast<uint2*>(results.out + at) = merged[column].Normalised();
    }
  }
}

// ---- The kernel.

// Synchronises the attending warps.
__device__ void SyncAttending() { asm volatile("barrier.sync 1, %0;" ::"n"(kAttendThreads) : "memory"); }

// Synchronises all warps. They call it from different code, where __syncthreads and bar.sync are
// not allowed.
__device__ void SyncAll() { asm volatile("barrier.sync 2, %0;" ::"n"(kThreads) : "memory"); }

// Returns the CTA's last unit, or a negative number if it has none.
template <int kHeadDim, int kTiles>
__device__ int AttendToUnits(const DecodeParams& p, uint8_t* rings, Exchange& exchange, int warp, int lane) {
  using B = Block<kHeadDim>;
  // The published values fit into a stage.
  static_assert(kTiles * kTileHeads * kHeadDim * sizeof(float) <= B::kStageBytes);
  uint8_t* ring = rings + warp * B::kRingBytes;
  const uint32_t ring_address = SharedAddress(ring);

  BlockReader<kHeadDim> reader(p, warp, lane);  // looks up the first block
  WaitForPrevious();
  for (int stage = 0; stage < kStages - 1; ++stage) reader.Fetch(ring_address + stage * B::kStageBytes);
  int stage = 0;           // has the next block to attend to
  int free = kStages - 1;  // has no block
  HistorySplit split;
  int kv_head;
  int unit = blockIdx.x;
  for (; ReadUnit(p, unit, split, kv_head); unit += gridDim.x) {
    const AttentionSlice slice = p.args.slices[split.slice];
    const int group = p.args.heads / p.args.kv.kv_heads;
    Query<kHeadDim, kTiles> query;
    query.Load(p.args.q + slice.first_row * p.args.q_stride + kv_head * group * kHeadDim, group, lane);
    State<kHeadDim, kTiles> state;
    state.Clear();
    for (int begin = split.begin + warp * kBlockTokens; begin < split.end; begin += kWarps * kBlockTokens) {
      WaitCopies<kStages - 2>();
      __syncwarp();
      reader.Fetch(ring_address + free * B::kStageBytes);
      Attend(ring_address + stage * B::kStageBytes, split.end - begin, query, lane, state);
      free = stage;
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    __syncwarp();
    Publish(state, warp, lane, reinterpret_cast<float*>(ring + free * B::kStageBytes), exchange);
    SyncAttending();
    WriteUnit<kHeadDim>(exchange, Results(p, split, kv_head, slice));
    SyncAll();  // with the merging warp
  }
  return unit - static_cast<int>(gridDim.x);
}

// Merges the histories of all units but the last. For the last unit, it only sets exchange.merge.
template <int kHeadDim>
__device__ void MergeUnits(const DecodeParams& p, int lane, Exchange& exchange) {
  HistorySplit split;
  int kv_head;
  int unit = blockIdx.x;
  bool left = ReadUnit(p, unit, split, kv_head);
  while (left) {
    const Results results(p, split, kv_head, p.args.slices[split.slice]);
    unit += gridDim.x;
    left = ReadUnit(p, unit, split, kv_head);
    SyncAll();  // with the attending warps
    const bool merge = results.partial != nullptr && Arrive(results, lane);
    if (!left) exchange.merge = merge;
    if (left && merge) MergePartials<kHeadDim, 32>(results, lane);
  }
}

template <int kHeadDim, int kTiles>
__global__ void __launch_bounds__(kThreads, Block<kHeadDim>::kCtasPerSm)
    DecodeAttentionKernel(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(128) uint8_t rings[];
  __shared__ Exchange exchange;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  LetNextStart();
  if (warp == kWarps) {
    WaitForPrevious();
    MergeUnits<kHeadDim>(p, lane, exchange);
    SyncAll();
    return;
  }
  const int unit = AttendToUnits<kHeadDim, kTiles>(p, rings, exchange, warp, lane);
  SyncAll();
  if (unit < 0 || !exchange.merge) return;
  HistorySplit split;
  int kv_head;
  ReadUnit(p, unit, split, kv_head);
  MergePartials<kHeadDim, kAttendThreads>(Results(p, split, kv_head, p.args.slices[split.slice]), threadIdx.x);
}

template <int kHeadDim, int kTiles>
cudaError_t Launch(const DecodeParams& params, cudaStream_t stream) {
  using B = Block<kHeadDim>;
  const auto kernel = DecodeAttentionKernel<kHeadDim, kTiles>;
  DecodeGrid grid;
  if (const auto status = MakeDecodeGrid(params.args.kv.kv_heads, kHeadDim, &grid); status != cudaSuccess) {
    return status;
  }
  constexpr int kSharedBytes = kWarps * B::kRingBytes;
  if (const auto status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
      status != cudaSuccess) {
    return status;
  }
  return LaunchEarly(kernel, dim3(std::min(params.units, grid.ctas)), kThreads, kSharedBytes, stream, params);
}

}  // namespace

cudaError_t MakeDecodeGrid(int32_t kv_heads, int32_t head_dim, DecodeGrid* grid) {
  int sms = 0;
  if (const auto status = DeviceAttribute(cudaDevAttrMultiProcessorCount, &sms); status != cudaSuccess) return status;
  *grid = {kv_heads, sms * (head_dim == 64 ? Block<64>::kCtasPerSm : Block<128>::kCtasPerSm)};
  return cudaSuccess;
}

int64_t DecodeWorkspaceBytes(int32_t heads, int32_t kv_heads, int32_t head_dim, int64_t partials) {
  return partials * kv_heads * PartialLayout{heads / kv_heads, head_dim}.Floats() * int64_t{sizeof(float)};
}

cudaError_t LaunchDecodeAttention(const AttentionArgs& args, const HistorySplit* splits, int32_t count, void* workspace,
                                  cudaStream_t stream) {
  const PagedKv& kv = args.kv;
  if (count < 0 || kv.kv_heads <= 0 || args.heads % kv.kv_heads != 0) return cudaErrorInvalidValue;
  if (args.heads < kv.kv_heads || args.heads / kv.kv_heads > kMaxGroup) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  const bool one_tile = args.heads / kv.kv_heads <= kTileHeads;
  const DecodeParams params{args, splits, count * kv.kv_heads, static_cast<float*>(workspace)};
  switch (kv.head_dim) {
    case 64:
      return one_tile ? Launch<64, 1>(params, stream) : Launch<64, 2>(params, stream);
    case 128:
      return one_tile ? Launch<128, 1>(params, stream) : Launch<128, 2>(params, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace baton::cuda
