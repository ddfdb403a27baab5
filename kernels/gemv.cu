#include <algorithm>

#include "kernels/gemv.h"
#include "kernels/launch.cuh"
#include "kernels/mma.cuh"
#include "kernels/vectors.cuh"

namespace baton::cuda {
namespace {

// The design of the kernel:
//
// - A CTA takes tiles of 16 rows of w, one after another. Its warps share a tile's columns in
//   chunks of 64, in rotation. Each warp has a ring of stages that continues from tile to tile, so
//   that copies never pause. At a tile's end, the warps' sums are added in the order of the warps.
// - Tensor cores compute transposed products. The other units stay idle for any number of rows.
//     Y^T [16 rows of w, 8 rows of x] = W [16, 16 columns] X^T [16 columns, 8]
// - A product may multiply any 16 columns, if both operands use the same columns. Each lane
//   therefore takes eight adjacent elements of each of its rows, which serve two products.
// - A CTA takes more than half of a multiprocessor's shared memory. CTAs are then spread evenly,
//   even if the previous launch has not ended everywhere, and as many copies as possible are in
//   flight.
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kTileRows = 16;
constexpr int kChunkColumns = 64;  // 128 bytes of each row of w
constexpr int kStageBytes = kTileRows * kChunkColumns * sizeof(Bf16);
constexpr int kFewestStages = 3;
constexpr int kUnit = 8;  // elements of 16 bytes
constexpr int kTileSums = kTileRows * kMaxGemvRows;
static_assert(kThreads >= kTileSums);

struct GemvParams {
  GemvArgs args;
  int tiles;
  // Chunks of a row of w. The last chunk is filled up with zeros.
  int chunks;
  // Row r < 8 of tile t is row t * tile_step + r of w. Row r >= 8 is row t * tile_step +
  // second_half + r - 8.
  int tile_step;
  int second_half;
};

// Returns the byte offset of a unit of 16 bytes in a stage. Lanes read eight units at once, four
// units of each of two rows. No two of them are in the same banks.
__device__ int StageOffset(int row, int unit) { return row * 128 + (unit ^ (row % 2 * 4)) * 16; }

// Returns the units from row to row of x in shared memory, where a row has `chunks` whole chunks.
// Lanes read eight units at once, four units of each of two rows. No two of them are in the same
// banks.
__host__ __device__ constexpr int InputStride(int chunks) { return chunks * kChunkColumns / kUnit + 4; }

__device__ uint64_t EvictFirst() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Does what CopyAsync does, with the hint that the data is not read again soon.
__device__ void CopyOnce(uint32_t to, const void* from, bool read, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from),
               "r"(read ? 16 : 0), "l"(policy)
               : "memory");
}

// Copies a warp's chunks into its ring, in the order in which the warp multiplies them.
class WeightReader {
 public:
  __device__ WeightReader(const GemvParams& params, int warp, int lane)
      : p_(params), warp_(warp), lane_(lane), policy_(EvictFirst()), chunk_(warp) {
    if (warp >= p_.chunks) tile_ = p_.tiles;
  }

  // Starts copying the next chunk, if there is one. Elements past the end of w become zeros.
  // Commits one group.
  __device__ void Fetch(uint32_t stage) {
    if (tile_ < p_.tiles) {
      const int64_t k = p_.args.k;
      const int row = lane_ / 8, unit = lane_ % 8;
      const int first = tile_ * p_.tile_step + row;
      const int column = chunk_ * kChunkColumns + unit * kUnit;
      const Bf16* from = p_.args.w + first * k + column;
      const auto copy = [&](int tile_row, int w_row) {
        CopyOnce(stage + StageOffset(row + tile_row, unit), from + w_row * k, column < k && first + w_row < p_.args.n,
                 policy_);
      };
      copy(0, 0);
      copy(4, 4);
      copy(8, p_.second_half);
      copy(12, p_.second_half + 4);
      chunk_ += kWarps;
      if (chunk_ >= p_.chunks) {
        chunk_ = warp_;
        tile_ += gridDim.x;
      }
    }
    CommitCopies();
  }

 private:
  const GemvParams& p_;
  const int warp_;
  const int lane_;
  const uint64_t policy_;
  // The next chunk to fetch, of tile_.
  int chunk_;
  int tile_ = blockIdx.x;
};

// Loads x into shared memory, with zeros past its end.
__device__ void LoadInput(const GemvArgs& args, int stride, uint4* x) {
  constexpr int kTogether = 4;  // loads in flight
  const int rows = args.rows, filled = args.k / kUnit;
  for (int row = threadIdx.x / 32; row < rows; row += kWarps) {
#pragma unroll 1
    for (int unit = filled + threadIdx.x % 32; unit < stride; unit += 32) x[row * stride + unit] = {};
  }
  const auto* from = reinterpret_cast<const uint4*>(args.x);
  // The indexes in x and in the row.
  int to = threadIdx.x, unit = threadIdx.x;
#pragma unroll 1
  for (int begin = threadIdx.x; begin < rows * filled; begin += kTogether * kThreads) {
    uint4 loaded[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (begin + i * kThreads < rows * filled) loaded[i] = from[begin + i * kThreads];
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      for (; unit >= filled; unit -= filled) to += stride - filled;  // to the next row
      if (begin + i * kThreads < rows * filled) x[to] = loaded[i];
      unit += kThreads;
      to += kThreads;
    }
  }
}

// Computes sums += W X^T of one chunk. `x` is the chunk's part of row 0.
__device__ void Multiply(const uint8_t* stage, const uint4* x, int stride, int rows, int lane, float (&sums)[4]) {
  const int group = lane / 4, place = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint4 b = {};
    if (group < rows) b = x[group * stride + half * 4 + place];
    const uint4 upper = *reinterpret_cast<const uint4*>(stage + StageOffset(group, half * 4 + place));
    const uint4 lower = *reinterpret_cast<const uint4*>(stage + StageOffset(group + 8, half * 4 + place));
    const uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y}, second[4] = {upper.z, lower.z, upper.w, lower.w};
    Mma(sums, first, b.x, b.y);
    Mma(sums, second, b.z, b.w);
  }
}

// The element of y that one thread writes for each tile.
class Output {
 public:
  // Loads the old y long before it is used.
  __device__ Output(const GemvParams& params, int tile) : args_(params.args) {
    const int tile_columns = params.tile_step;  // columns of y
    row_ = static_cast<int>(threadIdx.x) / tile_columns;
    tile_row_ = static_cast<int>(threadIdx.x) % tile_columns;
    w_row_ = tile * tile_columns + tile_row_;
    any_ = row_ < args_.rows && w_row_ < args_.n;
    at_ = row_ * args_.y_stride + w_row_;
    if (any_ && args_.add) before_ = static_cast<const float*>(args_.y)[at_];
  }

  __device__ void Write(const float (&of_warps)[kWarps][kTileSums]) const {
    if (!any_) return;
    const float sum = Sum(of_warps, tile_row_, w_row_);
    if (args_.swiglu) {
      const float up = Sum(of_warps, tile_row_ + 8, args_.n / 2 + w_row_);
      static_cast<Bf16*>(args_.y)[at_] = __float2bfloat16_rn(up * Silu(sum));
    } else if (args_.fp32_output) {
      static_cast<float*>(args_.y)[at_] = before_ + sum;
    } else {
      static_cast<Bf16*>(args_.y)[at_] = __float2bfloat16_rn(sum);
    }
  }

 private:
  __device__ float Sum(const float (&of_warps)[kWarps][kTileSums], int tile_row, int w_row) const {
    float sum = args_.bias != nullptr ? __bfloat162float(args_.bias[w_row]) : 0;
#pragma unroll
    for (const auto& of_warp : of_warps) sum += of_warp[tile_row * kMaxGemvRows + row_];
    return sum;
  }

  const GemvArgs& args_;
  int row_, tile_row_, w_row_;
  bool any_;
  int64_t at_;
  float before_ = 0;
};

// Grid: at most one CTA per tile. Shared memory: the rings, then x.
template <int kStages>
__global__ void __launch_bounds__(kThreads, 1) GemvKernel(const __grid_constant__ GemvParams p) {
  extern __shared__ __align__(128) uint8_t rings[];
  // The sums of this tile and of the previous tile.
  __shared__ float sums_of_warps[2][kWarps][kTileSums];
  constexpr int kRingBytes = kStages * kStageBytes;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rows = p.args.rows;
  uint8_t* ring = rings + warp * kRingBytes;
  auto* x = reinterpret_cast<uint4*>(rings + kWarps * kRingBytes);

  LetNextStart();
  WeightReader reader(p, warp, lane);
  for (int stage = 0; stage < kStages - 1; ++stage) reader.Fetch(SharedAddress(ring + stage * kStageBytes));
  WaitForPrevious();  // the previous kernel does not write weights
  const int stride = InputStride(p.chunks);
  LoadInput(p.args, stride, x);
  __syncthreads();

  int stage = 0;           // has the next chunk
  int free = kStages - 1;  // has no chunk
  int turn = 0;
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    const Output output(p, tile);
    float sums[4] = {};
    for (int chunk = warp; chunk < p.chunks; chunk += kWarps) {
      WaitCopies<kStages - 2>();
      __syncwarp();
      reader.Fetch(SharedAddress(ring + free * kStageBytes));
      Multiply(ring + stage * kStageBytes, x + chunk * (kChunkColumns / kUnit), stride, rows, lane, sums);
      free = stage;
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    auto* own = reinterpret_cast<float2*>(sums_of_warps[turn][warp]);
    // Row lane / 4 of the tile, rows 2 (lane % 4) + {0, 1} of x.
    own[lane] = {sums[0], sums[1]};
    own[lane + 32] = {sums[2], sums[3]};
    __syncthreads();
    output.Write(sums_of_warps[turn]);
    turn = 1 - turn;
  }
}

// Returns the shared memory of a CTA for rings and x. The variables that the kernel declares take
// the rest.
cudaError_t SharedBytes(int* bytes) {
  constexpr int kDeclared = 17 << 10;
  static_assert(sizeof(float[2][kWarps][kTileSums]) <= kDeclared);
  const auto status = DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, bytes);
  *bytes -= kDeclared;
  return status;
}

template <int kStages>
cudaError_t Launch(const GemvParams& params, int input_bytes, int shared_bytes, int blocks, cudaStream_t stream) {
  const auto kernel = GemvKernel<kStages>;
  const int bytes = kWarps * kStages * kStageBytes + input_bytes;
  if (bytes > shared_bytes) return cudaErrorInvalidValue;
  // Always sets the same limit, because other threads set it, too.
  const auto status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (status != cudaSuccess) return status;
  return LaunchEarly(kernel, dim3(blocks), kThreads, bytes, stream, params);
}

}  // namespace

int32_t GemvRowsThatFit(int32_t k) {
  int shared_bytes = 0;
  if (SharedBytes(&shared_bytes) != cudaSuccess) return 0;
  const int row_bytes = InputStride((k + kChunkColumns - 1) / kChunkColumns) * static_cast<int>(sizeof(uint4));
  return std::clamp((shared_bytes - kFewestStages * kWarps * kStageBytes) / row_bytes, 0, kMaxGemvRows);
}

cudaError_t LaunchGemv(const GemvArgs& args, cudaStream_t stream) {
  if (args.rows < 1 || args.rows > kMaxGemvRows || args.n < 1 || args.k < kUnit || args.k % kUnit != 0) {
    return cudaErrorInvalidValue;
  }
  if (args.swiglu ? args.n % 16 != 0 || args.fp32_output || args.add : args.add && !args.fp32_output) {
    return cudaErrorInvalidValue;
  }
  int multiprocessors = 0;
  if (const auto status = DeviceAttribute(cudaDevAttrMultiProcessorCount, &multiprocessors); status != cudaSuccess) {
    return status;
  }
  const int tile_step = args.swiglu ? kTileRows / 2 : kTileRows;
  const int columns = args.swiglu ? args.n / 2 : args.n;
  const GemvParams params = {.args = args,
                             .tiles = (columns + tile_step - 1) / tile_step,
                             .chunks = (args.k + kChunkColumns - 1) / kChunkColumns,
                             .tile_step = tile_step,
                             .second_half = args.swiglu ? columns : kTileRows / 2};
  const int input_bytes = args.rows * InputStride(params.chunks) * static_cast<int>(sizeof(uint4));
  const int blocks = std::min(params.tiles, multiprocessors);
  int shared_bytes = 0;
  if (const auto status = SharedBytes(&shared_bytes); status != cudaSuccess) return status;
  const int stages = (shared_bytes - input_bytes) / (kWarps * kStageBytes);
  if (stages >= 6) return Launch<6>(params, input_bytes, shared_bytes, blocks, stream);
  if (stages == 5) return Launch<5>(params, input_bytes, shared_bytes, blocks, stream);
  if (stages == 4) return Launch<4>(params, input_bytes, shared_bytes, blocks, stream);
  return Launch<kFewestStages>(params, input_bytes, shared_bytes, blocks, stream);
}

}  // namespace baton::cuda
