#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "kernels/decode_attention.h"
#include "test/kernels/device_array.h"
#include "test/kernels/kernel_case.h"
#include "test/kernels/random_values.h"

namespace baton::cuda {
namespace {

struct Shape {
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;

  std::string Name() const {
    return "decode_attention hd" + std::to_string(head_dim) + " heads" + std::to_string(heads) + "/" +
           std::to_string(kv_heads);
  }
  // Elements of one layer in a block.
  int64_t LayerElements() const { return int64_t{2} * kv_heads * kBlockTokens * head_dim; }
  // Rows have the layout of a fused projection: q, then k and v. This kernel reads only q.
  int64_t QStride() const { return int64_t{heads + 2 * kv_heads} * head_dim; }
};

// Histories in one layer of a slab.
struct Histories {
  std::vector<AttentionSlice> slices;
  std::vector<int32_t> block_tables;
  int32_t blocks = 0;  // of the slab
};

// Rows and blocks are in random order. With `share`, all histories begin with the same blocks, as
// far as these blocks are full in both.
Histories RaggedHistories(const std::vector<int32_t>& keys, bool share, std::mt19937_64& random) {
  Histories histories;
  // Some blocks belong to no history.
  for (const int32_t n : keys) histories.blocks += BlocksOf(n) + 1;
  const std::vector<int64_t> blocks = RandomOrder(histories.blocks, random);
  const std::vector<int64_t> rows = RandomOrder(std::ssize(keys), random);
  std::vector<int32_t>& tables = histories.block_tables;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto table = static_cast<int32_t>(tables.size());
    histories.slices.push_back(
        {.first_row = static_cast<int32_t>(rows[i]), .rows = 1, .start = keys[i] - 1, .table = table});
    const int64_t shared = share && i > 0 ? std::min({keys[0], keys[i], 6 * kBlockTokens}) / kBlockTokens : 0;
    for (int64_t block = 0; block < BlocksOf(keys[i]); ++block) {
      tables.push_back(block < shared ? tables[block] : static_cast<int32_t>(blocks[tables.size()]));
    }
  }
  return histories;
}

// The inputs of one launch, on the device.
struct Inputs {
  DeviceArray<AttentionSlice> slices;
  DeviceArray<int32_t> block_tables;
  DeviceArray<HistorySplit> splits;
  DeviceArray<uint8_t> workspace;
  DeviceArray<Bf16> slab;
  DeviceArray<Bf16> q;
  DeviceArray<Bf16> out;
  AttentionArgs args;

  Inputs(const Shape& shape, const Histories& histories, const DeviceArray<Bf16>& kv_memory, const PagedKv& kv,
         const std::vector<Bf16>& q_rows)
      : slices(histories.slices),
        block_tables(histories.block_tables),
        slab(kv_memory),
        q(q_rows),
        out(histories.slices.size() * shape.heads * shape.head_dim) {
    std::vector<HistorySplit> planned;
    DecodeGrid grid;
    Must(MakeDecodeGrid(shape.kv_heads, shape.head_dim, &grid));
    const int32_t partials = PlanHistorySplits(histories.slices, grid, planned);
    planned.resize(planned.size() + 5);  // padding
    splits = DeviceArray<HistorySplit>(planned);
    workspace = DeviceArray<uint8_t>(
        std::vector<uint8_t>(DecodeWorkspaceBytes(shape.heads, shape.kv_heads, shape.head_dim, partials) + 16));
    args = {.q = q.data(),
            .q_stride = shape.QStride(),
            .heads = shape.heads,
            .kv = kv,
            .slices = slices.data(),
            .block_tables = block_tables.data(),
            .out = out.data()};
  }

  cudaError_t Launch(cudaStream_t stream) const {
    return LaunchDecodeAttention(args, splits.data(), static_cast<int32_t>(splits.size()), workspace.data(), stream);
  }
};

// Computes one head of one row in float64. `kv` points to host memory.
void Attend(const Bf16* q, int32_t kv_head, const AttentionSlice& slice, const int32_t* table, const PagedKv& kv,
            double* out) {
  const int32_t keys = slice.start + 1;
  const auto element = [&](const Bf16* block, int32_t key, int32_t dim) {
    return double{__bfloat162float(block[key % kBlockTokens * kv.head_dim + dim])};
  };
  std::vector<double> weights(keys);
  for (int32_t key = 0; key < keys; ++key) {
    const Bf16* block = kv.K<Bf16>(table[key / kBlockTokens], kv_head);
    for (int32_t dim = 0; dim < kv.head_dim; ++dim) {
      weights[key] += double{__bfloat162float(q[dim])} * element(block, key, dim);
    }
    weights[key] /= std::sqrt(double(kv.head_dim));
  }
  const double max = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - max);
  std::fill(out, out + kv.head_dim, 0.0);
  for (int32_t key = 0; key < keys; ++key) {
    const Bf16* block = kv.V<Bf16>(table[key / kBlockTokens], kv_head);
    for (int32_t dim = 0; dim < kv.head_dim; ++dim) out[dim] += weights[key] / sum * element(block, key, dim);
  }
}

KernelCase CheckCase(const Shape& shape, const std::vector<int32_t>& keys, std::mt19937_64& random) {
  constexpr int64_t kLayers = 3;
  constexpr int64_t kLayer = 1;
  const Histories histories = RaggedHistories(keys, true, random);
  const auto rows = static_cast<int64_t>(keys.size());

  std::vector<Bf16> slab(histories.blocks * kLayers * shape.LayerElements());
  std::memset(static_cast<void*>(slab.data()), 0xff, slab.size() * sizeof(Bf16));  // NaN
  PagedKv kv{.slab = slab.data(),
             .blocks = histories.blocks,
             .block_stride = kLayers * shape.LayerElements(),
             .layer_offset = kLayer * shape.LayerElements(),
             .kv_heads = shape.kv_heads,
             .head_dim = shape.head_dim};
  for (const AttentionSlice& slice : histories.slices) {
    for (int32_t key = 0; key <= slice.start; ++key) {
      const int32_t block = histories.block_tables[slice.table + key / kBlockTokens];
      for (int32_t head = 0; head < 2 * shape.kv_heads; ++head) {
        const auto values = RandomBf16(shape.head_dim, random);
        std::copy(values.begin(), values.end(), kv.K<Bf16>(block, head) + key % kBlockTokens * shape.head_dim);
      }
    }
  }
  std::vector<Bf16> q = RandomBf16(rows * shape.QStride(), random);
  // Some keys then count far more than others.
  for (Bf16& value : q) value = __float2bfloat16(8 * __bfloat162float(value));

  std::vector<double> reference(rows * shape.heads * shape.head_dim);
  for (const AttentionSlice& slice : histories.slices) {
    for (int32_t head = 0; head < shape.heads; ++head) {
      Attend(q.data() + slice.first_row * shape.QStride() + head * shape.head_dim,
             head / (shape.heads / shape.kv_heads), slice, histories.block_tables.data() + slice.table, kv,
             reference.data() + (int64_t{slice.first_row} * shape.heads + head) * shape.head_dim);
    }
  }

  const DeviceArray<Bf16> device_slab(slab);
  kv.slab = device_slab.data();
  const Inputs inputs(shape, histories, device_slab, kv, q);
  return {.name = shape.Name() + " ragged to " + std::to_string(*std::max_element(keys.begin(), keys.end())),
          .launch = [inputs](cudaStream_t stream) { return inputs.Launch(stream); },
          .error = [inputs, reference] { return RelativeError(inputs.out.ToHost(), reference); }};
}

std::vector<KernelCase> CheckCases(std::mt19937_64& random) {
  const std::vector<int32_t> ragged = {100, 1, 16, 17, 48, 255, 256, 257, 31, 384, 530, 769};
  std::vector<KernelCase> cases;
  for (const Shape& shape : std::initializer_list<Shape>{{2, 2, 64},
                                                         {3, 3, 128},
                                                         {6, 2, 64},
                                                         {6, 1, 128},
                                                         {7, 1, 64},
                                                         {8, 2, 128},
                                                         {8, 1, 64},
                                                         {10, 1, 64},
                                                         {18, 2, 128},
                                                         {16, 1, 64},
                                                         {16, 1, 128}}) {
    cases.push_back(CheckCase(shape, ragged, random));
  }
  cases.push_back(CheckCase({4, 2, 64}, {5}, random));
  // A history that is longer than kMaxSplits of the shortest splits.
  cases.push_back(CheckCase({3, 1, 64}, {kMinSplitKeys * kMaxSplits + 300, kMinSplitKeys * 5}, random));
  return cases;
}

// Memory that all bench cases share. Blocks have all layers of a model, as far as memory allows.
// One layer is therefore scattered over as many pages as in use.
struct BenchSlab {
  DeviceArray<Bf16> memory;
  int64_t blocks = 0;
  int64_t layers = 32;
};

BenchSlab MakeBenchSlab(const Shape& widest, int64_t blocks) {
  size_t available = 0;
  size_t total = 0;
  Must(cudaMemGetInfo(&available, &total));
  BenchSlab slab;
  slab.blocks = blocks;
  const auto elements = [&] { return blocks * slab.layers * widest.LayerElements(); };
  while (slab.layers > 1 && elements() * sizeof(Bf16) > available / 2) slab.layers /= 2;
  slab.memory = DeviceArray<Bf16>(elements());
  return slab;
}

// Returns the middle layer. Copies of a few random blocks fill it.
PagedKv MakeBenchLayer(const Shape& shape, const BenchSlab& slab, std::mt19937_64& random) {
  constexpr int64_t kPattern = 64;  // blocks
  const PagedKv kv{.slab = slab.memory.data(),
                   .blocks = slab.blocks,
                   .block_stride = slab.layers * shape.LayerElements(),
                   .layer_offset = slab.layers / 2 * shape.LayerElements(),
                   .kv_heads = shape.kv_heads,
                   .head_dim = shape.head_dim};
  const DeviceArray<Bf16> pattern(RandomBf16(kPattern * shape.LayerElements(), random));
  const size_t width = shape.LayerElements() * sizeof(Bf16);
  for (int64_t block = 0; block < kv.blocks; block += kPattern) {
    Must(cudaMemcpy2D(kv.K<Bf16>(block, 0), kv.block_stride * sizeof(Bf16), pattern.data(), width, width,
                      std::min(kPattern, kv.blocks - block), cudaMemcpyDeviceToDevice));
  }
  Must(cudaDeviceSynchronize());
  return kv;
}

KernelCase BenchCase(const Shape& shape, int32_t batch, int32_t keys, const BenchSlab& slab, const PagedKv& kv,
                     std::mt19937_64& random) {
  const Histories histories = RaggedHistories(std::vector<int32_t>(batch, keys), false, random);
  const Inputs inputs(shape, histories, slab.memory, kv, RandomBf16(batch * shape.QStride(), random));
  const double row = double(shape.heads) * shape.head_dim;
  return {.name = shape.Name() + " batch" + std::to_string(batch) + " x " + std::to_string(keys) + ", 1 of " +
                  std::to_string(slab.layers) + " layers",
          .flops = 4 * row * batch * keys,
          .bytes = sizeof(Bf16) * batch * (2.0 * keys * shape.kv_heads * shape.head_dim + 2 * row),
          .launch = [inputs](cudaStream_t stream) { return inputs.Launch(stream); },
          .error = nullptr};
}

std::vector<KernelCase> BenchCases(std::mt19937_64& random) {
  struct Batch {
    int32_t rows;
    int32_t keys;
  };
  constexpr Batch kBatches[] = {{64, 1024}, {256, 1024}, {8, 32768}, {1, 1024}, {1, 32768}};
  constexpr Shape kWide{32, 8, 128};
  constexpr Shape kNarrow{32, 8, 64};
  int64_t blocks = 0;
  for (const Batch& batch : kBatches) blocks = std::max<int64_t>(blocks, batch.rows * (BlocksOf(batch.keys) + 1));

  const BenchSlab slab = MakeBenchSlab(kWide, blocks);
  std::vector<KernelCase> cases;
  for (const Shape& shape : {kWide, kNarrow}) {
    const PagedKv kv = MakeBenchLayer(shape, slab, random);
    for (const Batch& batch : kBatches) cases.push_back(BenchCase(shape, batch.rows, batch.keys, slab, kv, random));
  }
  return cases;
}

}  // namespace

std::vector<KernelCase> DecodeAttentionCases(CaseSize size, uint64_t seed) {
  std::mt19937_64 random(seed);
  return size == CaseSize::kCheck ? CheckCases(random) : BenchCases(random);
}

}  // namespace baton::cuda
