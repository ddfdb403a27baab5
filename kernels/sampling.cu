#include <cmath>

#include "kernels/mma.cuh"
#include "kernels/sampling.h"
#include "kernels/warp.cuh"

namespace baton::cuda {
namespace {

constexpr float kGreedyBelow = 1e-5f;
constexpr float kLog2E = 1.44269504f;

// Statistics. A CTA reads one part of a row. The parts depend on the vocabulary alone. One warp
// merges the parts of a row.
constexpr int kPartThreads = 256;
constexpr int kPartVectors = 8;  // float4 per thread
constexpr int kPartSize = kPartThreads * kPartVectors * 4;
constexpr int kMaxParts = kMaxSampledVocab / kPartSize;
static_assert(kMaxParts <= 32);

// Drawing. A CTA has one row.
constexpr int kDrawThreads = 1024;
constexpr int kDrawWarps = kDrawThreads / 32;
constexpr int kUnroll = 4;              // loads in flight per thread
constexpr float kLeastLogWeight = -40;  // to base 2

struct PartStats {
  float max;
  float sum;      // sum of e^(logit - max)
  int32_t first;  // id of the first maximum
};

// The state of one row, in the workspace.
struct RowState {
  float max;
  float log_sum;      // logarithm of the sum of e^(logit - max)
  unsigned arrivals;  // number of parts that have arrived
  PartStats parts[kMaxParts];
};

__device__ bool Greedy(const SamplingRow& params) {
  return params.draw.temperature < kGreedyBelow || params.draw.top_k == 1;
}

// Returns true if penalties or biases change the row's logits.
__device__ bool IsShaped(const SamplingRow& params) {
  return params.seen_count > 0 || params.bias_count > 0 || params.only_biased;
}

__device__ float* RowLogits(const SamplingArgs& args, int row) { return args.logits + row * args.stride; }

// Returns the logits of ids [4 * vector, 4 * vector + 4), with -inf from `end` on.
__device__ float4 LoadLogits(const float* logits, int vector, int end) {
  const int id = vector * 4;
  if (id >= end) return {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  float4 x = reinterpret_cast<const float4*>(logits)[vector];
  if (id + 1 >= end) x.y = -INFINITY;
  if (id + 2 >= end) x.z = -INFINITY;
  if (id + 3 >= end) x.w = -INFINITY;
  return x;
}

// ---- Statistics.

struct Max {
  __device__ float operator()(float a, float b) const { return MaxOrNan(a, b); }
};
struct Min {
  __device__ int operator()(int a, int b) const { return min(a, b); }
};
struct Plus {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

// Returns the combination of all threads' values to every thread of a part's CTA. `scratch` has one
// value per warp and is used once.
template <typename T, typename Combine>
__device__ T PartReduce(T value, Combine combine, T* scratch) {
  value = WarpReduce(value, combine);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = scratch[0];
#pragma unroll
  for (int warp = 1; warp < kPartThreads / 32; ++warp) value = combine(value, scratch[warp]);
  return value;
}

__device__ PartStats ReadPart(const float* logits, int vocab, int part) {
  __shared__ float maxima[kPartThreads / 32];
  __shared__ float sums[kPartThreads / 32];
  __shared__ int firsts[kPartThreads / 32];
  const int first_vector = part * (kPartSize / 4) + threadIdx.x;
  float4 x[kPartVectors];
#pragma unroll
  for (int i = 0; i < kPartVectors; ++i) x[i] = LoadLogits(logits, first_vector + i * kPartThreads, vocab);

  float max = -INFINITY;
#pragma unroll
  for (const float4& v : x) max = MaxOrNan(max, MaxOrNan(MaxOrNan(v.x, v.y), MaxOrNan(v.z, v.w)));
  max = PartReduce(max, Max{}, maxima);

  const float origin = isfinite(max) ? max : 0;  // a part may be all -inf
  float sum = 0;
  int first = vocab;
#pragma unroll
  for (int i = kPartVectors - 1; i >= 0; --i) {
    const float4 v = x[i];
    sum += Exp2((v.x - origin) * kLog2E) + Exp2((v.y - origin) * kLog2E) + Exp2((v.z - origin) * kLog2E) +
           Exp2((v.w - origin) * kLog2E);
    const int id = (first_vector + i * kPartThreads) * 4;
    if (v.w == max) first = id + 3;
    if (v.z == max) first = id + 2;
    if (v.y == max) first = id + 1;
    if (v.x == max) first = id;
  }
  return {max, PartReduce(sum, Plus{}, sums), PartReduce(first, Min{}, firsts)};
}

// Merges the parts of a row in one warp. REQUIRES: all parts have arrived. Also writes the results
// of rows that want the most likely token.
__device__ void MergeParts(const SamplingArgs& args, int row, int parts, RowState& state, int lane) {
  PartStats part{-INFINITY, 0, args.vocab};
  // Other CTAs wrote the parts, so the loads bypass L1.
  if (lane < parts) {
    part = {__ldcg(&state.parts[lane].max), __ldcg(&state.parts[lane].sum), __ldcg(&state.parts[lane].first)};
  }
  const float max = WarpReduce(part.max, Max{});
  const float sum = WarpReduce(part.sum * Exp2((part.max - max) * kLog2E), Plus{});
  const int first = WarpReduce(part.max == max ? part.first : args.vocab, Min{});
  if (lane > 0) return;
  state.max = max;
  state.log_sum = logf(sum);
  args.maxima[row] = max;
  if (!isfinite(max)) {
    args.ids[row] = kNoFiniteLogit;
    args.logprobs[row] = NAN;
  } else if (Greedy(args.params[row]) && !IsShaped(args.params[row])) {
    args.ids[row] = first;
    args.logprobs[row] = -state.log_sum;
  }
}

__global__ void __launch_bounds__(kPartThreads) StatisticsKernel(const __grid_constant__ SamplingArgs args) {
  const int part = blockIdx.x;
  const int row = blockIdx.y;
  RowState& state = static_cast<RowState*>(args.workspace)[row];
  const PartStats stats = ReadPart(RowLogits(args, row), args.vocab, part);
  if (threadIdx.x >= 32) return;
  bool last = false;
  if (threadIdx.x == 0) {
    state.parts[part] = stats;
    __threadfence();
    last = atomicAdd(&state.arrivals, 1) == gridDim.x - 1;
    __threadfence();
    if (last) state.arrivals = 0;
  }
  if (__shfl_sync(~0u, last, 0)) MergeParts(args, row, gridDim.x, state, threadIdx.x);
}

// ---- Drawing.

// A row's weights 2^log_weight. The most likely token has the weight 1. A token's `key` is the
// order bits of its weight: the bit pattern, which has the same order as the weights.
struct Weights {
  const float* logits;
  int vocab;
  float max;
  float scale;  // log2(e) / temperature

  __device__ uint32_t Key(float logit) const {
    const float log_weight = (logit - max) * scale;
    return log_weight > kLeastLogWeight ? __float_as_uint(Exp2(log_weight)) : 0;
  }
};

__device__ double Weight(uint32_t key) { return __uint_as_float(key); }

// The candidates: all tokens with order bits above `key`, and the first `ties` tokens by id whose
// order bits equal it.
struct Cut {
  uint32_t key = 0;
  int ties = 0;
};

constexpr int kBins = kDrawThreads;
constexpr int kBinBits = 10;
constexpr int kKeyBits = 3 * kBinBits;  // order bits are at most those of weight 1
static_assert(kBins == 1 << kBinBits);

struct DrawScratch {
  uint32_t bins[2][kBins];
  double tails[kBins];
  double warp_sums[kDrawWarps];
  int warp_ties[kDrawWarps];
  unsigned long long warp_best[kDrawWarps];
  int first;
};

// Calls visit(id, logit) for one worker's share of ids [begin, end), in ascending order. `begin` is
// a multiple of 4. Also visits a few ids past the end, with logit -inf.
template <typename Visit>
__device__ void ForEachLogit(const float* logits, int begin, int end, int worker, int workers, Visit visit) {
  for (int vector = begin / 4 + worker; vector * 4 < end; vector += workers * kUnroll) {
    float4 x[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) x[i] = LoadLogits(logits, vector + i * workers, end);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int id = (vector + i * workers) * 4;
      visit(id, x[i].x);
      visit(id + 1, x[i].y);
      visit(id + 2, x[i].z);
      visit(id + 3, x[i].w);
    }
  }
}

// Returns the sum of the values of threads [0, threadIdx.x].
__device__ double CtaPrefixSum(double value, double (&warp_sums)[kDrawWarps]) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  value = WarpPrefixSum(value, lane);
  if (lane == 31) warp_sums[warp] = value;
  __syncthreads();
  const double before = __shfl_sync(~0u, WarpPrefixSum(warp_sums[lane], lane), warp > 0 ? warp - 1 : 0);
  return warp > 0 ? before + value : value;
}

// The number of tokens, as a measure that Select adds up in bins of order bits with equal leading
// bits. The bins are integers, so the order of additions does not matter.
struct TokenCount {
  static __device__ void Add(uint32_t (&bins)[2][kBins], uint32_t bin, uint32_t) { atomicAdd(&bins[0][bin], 1); }
  static __device__ double Sum(const uint32_t (&bins)[2][kBins], uint32_t bin, uint32_t) { return bins[0][bin]; }
};
// The total weight of tokens, as a measure for Select. The order bits of a bin share their
// exponent, so mantissas are added up. Each mantissa is added in two halves, whose sums over 2^18
// tokens cannot overflow.
struct TotalWeight {
  static __device__ void Add(uint32_t (&bins)[2][kBins], uint32_t bin, uint32_t key) {
    const uint32_t mantissa = (key & 0x7fffff) | 0x800000;
    atomicAdd(&bins[0][bin], mantissa >> 12);
    atomicAdd(&bins[1][bin], mantissa & 0xfff);
  }
  static __device__ double Sum(const uint32_t (&bins)[2][kBins], uint32_t bin, uint32_t key) {
    return (bins[0][bin] * 4096.0 + bins[1][bin]) * (Weight(key & 0x7f800000) * 0x1p-23);
  }
};

// A result of Select.
struct Selection {
  uint32_t key;
  double above;  // measure of order bits larger than `key`
  double target;
};

// Selects among the order bits above `floor`. Returns the largest ones for which those not below
// them measure at least target_of(all), or 0 if there are none. It is a radix selection that begins
// with the leading bits.
template <typename Measure, typename Target>
__device__ Selection Select(const Weights& weights, uint32_t floor, Target target_of, DrawScratch& scratch) {
  Selection selection{0, 0, 0};
  for (int shift = kKeyBits - kBinBits; shift >= 0; shift -= kBinBits) {
    const uint32_t prefix = selection.key;
    scratch.bins[0][threadIdx.x] = 0;
    scratch.bins[1][threadIdx.x] = 0;
    if (threadIdx.x == 0) scratch.first = kBins - 1;
    __syncthreads();
    ForEachLogit(weights.logits, 0, weights.vocab, threadIdx.x, kDrawThreads, [&](int, float logit) {
      const uint32_t key = weights.Key(logit);
      if (key > floor && key >> (shift + kBinBits) == prefix) {
        Measure::Add(scratch.bins, key >> shift & (kBins - 1), key);
      }
    });
    __syncthreads();
    const uint32_t bin = kBins - 1 - threadIdx.x;  // from the largest order bits down
    const double sum = Measure::Sum(scratch.bins, bin, (prefix << kBinBits | bin) << shift);
    const double tail = selection.above + CtaPrefixSum(sum, scratch.warp_sums);
    scratch.tails[threadIdx.x] = tail;
    __syncthreads();
    if (shift == kKeyBits - kBinBits) selection.target = target_of(scratch.tails[kBins - 1]);
    if (tail >= selection.target) atomicMin(&scratch.first, static_cast<int>(threadIdx.x));
    __syncthreads();
    const int first = scratch.first;
    selection.key = prefix << kBinBits | (kBins - 1 - first);
    if (first > 0) selection.above = scratch.tails[first - 1];
    __syncthreads();
  }
  return selection;
}

__device__ Cut KeepCandidates(const Weights& weights, const SamplingRow& params, DrawScratch& scratch) {
  Cut cut;
  if (params.draw.top_k > 0 && params.draw.top_k < weights.vocab) {
    const auto top = Select<TokenCount>(
        weights, 0, [&](double) { return double(params.draw.top_k); }, scratch);
    cut = {top.key, params.draw.top_k - static_cast<int>(top.above)};
  }
  if (params.draw.top_p < 1) {
    const double tied = cut.ties * Weight(cut.key);
    const auto top = Select<TotalWeight>(
        weights, cut.key, [&](double sum) { return params.draw.top_p * (sum + tied); }, scratch);
    const uint32_t key = max(top.key, cut.key);
    const double ties = ceil((top.target - top.above) / Weight(key));
    cut = {key, max(1, static_cast<int>(fmin(ties, double(weights.vocab))))};
  }
  if (const uint32_t least = __float_as_uint(params.draw.min_p); cut.key < least) cut = {least - 1, 0};
  return cut;
}

// A range of ids [begin, end) that contains the drawn token. The drawn token is the first one at
// which the running sum of kept weights exceeds `left`.
struct Span {
  int begin;
  int end;
  int ties;  // number of the cut's ties from this span on
  double left;
};

// Narrows a span to one of 32 parts. Each warp adds up one part. `left_of` receives the sum of all
// parts and returns `left`.
template <typename Left>
__device__ Span Narrow(const Weights& weights, const Cut& cut, const Span& span, Left left_of, DrawScratch& scratch) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int step = (span.end - span.begin + 4 * kDrawWarps - 1) / (4 * kDrawWarps) * 4;
  double above = 0;
  int equal = 0;
  const int begin = span.begin + warp * step;
  ForEachLogit(weights.logits, begin, min(begin + step, span.end), lane, 32, [&](int, float logit) {
    const uint32_t key = weights.Key(logit);
    if (key > cut.key) above += Weight(key);
    equal += key == cut.key;
  });
  above = WarpReduce(above, Plus{});
  equal = WarpReduce(equal, Plus{});
  if (lane == 0) {
    scratch.warp_sums[warp] = above;
    scratch.warp_ties[warp] = equal;
  }
  __syncthreads();

  // From here on, each lane stands for a part.
  equal = scratch.warp_ties[lane];
  const int ties = span.ties - (WarpPrefixSum(equal, lane) - equal);  // left for this part
  const double sum = scratch.warp_sums[lane] + max(0, min(ties, equal)) * Weight(cut.key);
  const double running = WarpPrefixSum(sum, lane);
  const double left = left_of(__shfl_sync(~0u, running, 31));
  // If rounding leads past the end, the last part with a weight is taken.
  const unsigned reached = __ballot_sync(~0u, running > left);
  const int part = reached != 0 ? __ffs(reached) - 1 : 31 - __clz(__ballot_sync(~0u, sum > 0));
  const double before = __shfl_sync(~0u, running, max(part - 1, 0));
  Span result;
  result.begin = span.begin + part * step;
  result.end = min(result.begin + step, span.end);
  result.ties = __shfl_sync(~0u, ties, part);
  result.left = part > 0 ? left - before : left;
  __syncthreads();
  return result;
}

__device__ int Draw(const Weights& weights, const SamplingRow& params, DrawScratch& scratch) {
  const Cut cut = KeepCandidates(weights, params, scratch);
  Span span{0, weights.vocab, cut.ties, 0};
  span = Narrow(
      weights, cut, span, [&](double sum) { return params.uniform * sum; }, scratch);
  while (span.end - span.begin > 4) {
    span = Narrow(
        weights, cut, span, [&](double) { return span.left; }, scratch);
  }
  int last = span.begin;
  for (int id = span.begin; id < span.end && span.left >= 0; ++id) {
    const uint32_t key = weights.Key(weights.logits[id]);
    if (key < cut.key || key == 0 || (key == cut.key && span.ties-- <= 0)) continue;
    span.left -= Weight(key);
    last = id;
  }
  return last;
}

// Returns the most likely token. The upper half is its logit, in bits of the same order. The lower
// half is its complemented id.
__device__ unsigned long long Best(const float* logits, int vocab, DrawScratch& scratch) {
  unsigned long long best = 0;
  ForEachLogit(logits, 0, vocab, threadIdx.x, kDrawThreads, [&](int id, float logit) {
    // Removes -0, whose bits would order before those of 0.
    const uint32_t bits = __float_as_uint(logit + 0.0f);
    const uint32_t ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
    const unsigned long long token = static_cast<unsigned long long>(ordered) << 32 | ~static_cast<uint32_t>(id);
    best = max(best, token);
  });
  const auto larger = [](auto a, auto b) { return max(a, b); };
  best = WarpReduce(best, larger);
  if (threadIdx.x % 32 == 0) scratch.warp_best[threadIdx.x / 32] = best;
  __syncthreads();
  return WarpReduce(scratch.warp_best[threadIdx.x % 32], larger);
}
__device__ int BestId(unsigned long long best) { return static_cast<int>(~static_cast<uint32_t>(best)); }
__device__ float BestLogit(unsigned long long best) {
  const auto ordered = static_cast<uint32_t>(best >> 32);
  return __uint_as_float(ordered >> 31 != 0 ? ordered & 0x7fffffffu : ~ordered);
}

// Rounds like the CPU, so that greedy choices agree.
__device__ float Penalised(float logit, int outputs, const SamplingRow& params) {
  logit = logit > 0 ? logit / params.draw.repetition_penalty : logit * params.draw.repetition_penalty;
  if (outputs == 0) return logit;
  return logit -
         __fadd_rn(params.draw.presence_penalty, __fmul_rn(params.draw.frequency_penalty, static_cast<float>(outputs)));
}

template <typename Visit>
__device__ void ForEachSeen(const SamplingArgs& args, const SamplingRow& params, Visit visit) {
  for (int i = threadIdx.x; i < params.seen_count; i += kDrawThreads) {
    const int at = params.seen_begin + i;
    const SeenToken seen = args.seen[at];
    if (seen.id >= 0 && seen.id < args.vocab) visit(seen, args.seen_logits[at]);
  }
}

template <typename Visit>
__device__ void ForEachBias(const SamplingArgs& args, const SamplingRow& params, Visit visit) {
  for (int i = threadIdx.x; i < params.bias_count; i += kDrawThreads) {
    const int at = params.bias_begin + i;
    const TokenBias bias = args.biases[at];
    if (bias.id >= 0 && bias.id < args.vocab) visit(bias, args.bias_logits[at]);
  }
}

// Applies biases and then penalties. Keeps the logits that it changes for Restore.
__device__ void Shape(const SamplingArgs& args, const SamplingRow& params, float* logits) {
  ForEachBias(args, params, [&](const TokenBias& bias, float& raw) { raw = logits[bias.id]; });
  if (params.only_biased) {
    __syncthreads();
    for (int id = threadIdx.x; id < args.vocab; id += kDrawThreads) logits[id] = -INFINITY;
    __syncthreads();
  }
  ForEachBias(args, params, [&](const TokenBias& bias, float raw) { logits[bias.id] = raw + bias.bias; });
  __syncthreads();
  ForEachSeen(args, params, [&](const SeenToken& seen, float& biased) {
    biased = logits[seen.id];
    logits[seen.id] = Penalised(biased, seen.outputs, params);
  });
  __syncthreads();
}

__device__ void Restore(const SamplingArgs& args, const SamplingRow& params, float* logits) {
  __syncthreads();
  ForEachSeen(args, params, [&](const SeenToken& seen, float biased) { logits[seen.id] = biased; });
  __syncthreads();
  ForEachBias(args, params, [&](const TokenBias& bias, float raw) { logits[bias.id] = raw; });
  __syncthreads();
}

// Chooses the tokens of the rows that StatisticsKernel has not finished.
__global__ void __launch_bounds__(kDrawThreads) DrawKernel(const __grid_constant__ SamplingArgs args) {
  __shared__ DrawScratch scratch;
  const int row = blockIdx.x;
  const SamplingRow params = args.params[row];
  const RowState& state = static_cast<const RowState*>(args.workspace)[row];
  const bool shaped = IsShaped(params);
  if (!isfinite(state.max) || (Greedy(params) && !shaped)) return;
  float* logits = RowLogits(args, row);

  unsigned long long best = 0;
  if (shaped) {
    Shape(args, params, logits);
    best = Best(logits, args.vocab, scratch);
  }
  const float max = shaped ? BestLogit(best) : state.max;
  int id = kAllExcluded;
  if (max > -INFINITY) {
    id = Greedy(params) ? BestId(best)
                        : Draw({logits, args.vocab, max, kLog2E / params.draw.temperature}, params, scratch);
  }
  if (shaped) Restore(args, params, logits);
  if (threadIdx.x == 0) {
    args.ids[row] = id;
    args.logprobs[row] = id >= 0 ? logits[id] - state.max - state.log_sum : NAN;
  }
}

}  // namespace

int64_t SamplingWorkspaceBytes(int32_t rows) { return rows * int64_t{sizeof(RowState)}; }

cudaError_t LaunchSampling(const SamplingArgs& args, cudaStream_t stream) {
  constexpr int kMaxRows = 65535;  // grid limit in y
  if (args.rows < 0 || args.rows > kMaxRows || args.vocab <= 0 || args.vocab > kMaxSampledVocab ||
      args.stride < args.vocab || args.stride % 4 != 0) {
    return cudaErrorInvalidValue;
  }
  if (args.rows == 0) return cudaSuccess;
  const int parts = (args.vocab + kPartSize - 1) / kPartSize;
  StatisticsKernel<<<dim3(parts, args.rows), kPartThreads, 0, stream>>>(args);
  if (const auto status = cudaGetLastError(); status != cudaSuccess) return status;
  DrawKernel<<<args.rows, kDrawThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace baton::cuda
