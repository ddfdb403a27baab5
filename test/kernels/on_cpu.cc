#include "test/kernels/on_cpu.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <thread>

#include "backend/cpu/cpu_attention.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/memory_communicator.h"
#include "backend/cpu/packed_weight.h"
#include "backend/cpu/thread_pool.h"
#include "base/check.h"
#include "kv/block_layout.h"
#include "test/kernels/random_values.h"

namespace baton::cuda {
namespace {

constexpr const KernelTable& kKernels = kPortableKernels;

std::vector<float> Widen(const Bf16* values, int64_t count) {
  std::vector<float> wide(static_cast<size_t>(count));
  std::transform(values, values + count, wide.begin(), [](Bf16 value) { return __bfloat162float(value); });
  return wide;
}
std::vector<double> Doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

template <typename T>
Tensor Matrix(const T* values, int64_t rows, int64_t columns) {
  return {.data = reinterpret_cast<const std::byte*>(values),
          .dtype = sizeof(T) == 2 ? DType::kBF16 : DType::kF32,
          .rows = rows,
          .cols = columns};
}

std::vector<Bf16> Identity(int64_t size) {
  std::vector<Bf16> matrix(static_cast<size_t>(size * size), __float2bfloat16(0));
  for (int64_t i = 0; i < size; ++i) matrix[static_cast<size_t>(i * size + i)] = __float2bfloat16(1);
  return matrix;
}

// The rows of a table that are some tokens' embeddings, normalised: logits whose head is the identity.
std::vector<double> NormalisedEmbeddings(const Tensor& table, std::span<const int32_t> tokens, const Tensor& norm,
                                         double epsilon) {
  ModelConfig config;
  config.dtype = table.dtype;
  config.layers = config.heads = config.kv_heads = 1;
  config.head_dim = 64;
  config.hidden = config.ffn = config.vocab = table.cols;
  config.rms_eps = epsilon;
  const KvLayout layout = {.layers = 1, .kv_heads = 1, .head_dim = config.head_dim};
  std::vector<std::byte> slab(static_cast<size_t>(layout.BlockBytes()));
  const BlockId block(0);
  Batch batch;
  for (const int32_t& token : tokens) batch.slices.push_back({.tokens = {&token, 1}, .blocks = {&block, 1}});

  ThreadPool pool(1);
  CpuOps ops(config, kKernels, pool, layout, slab);
  const std::vector<Bf16> identity = Identity(table.cols);
  const auto pack = [&](WeightSource::Form form, const Tensor& tensor) {
    return ops.Pack({.form = form, .parts = {tensor}, .biases = {}}).value();
  };
  const WeightId rows = pack(WeightSource::Form::kTable, table);
  const WeightId norm_weight = pack(WeightSource::Form::kVector, norm);
  const WeightId head = pack(WeightSource::Form::kMatrix, Matrix(identity.data(), table.cols, table.cols));
  BATON_CHECK(ops.Begin(batch).ok(), "a batch on the CPU");
  ops.Embed(rows);
  const LogitsView logits = ops.Logits(norm_weight, head).value();
  return {logits.data, logits.data + logits.rows * logits.vocab};
}

}  // namespace

std::vector<double> EmbedOnCpu(const std::vector<Bf16>& table, const std::vector<int32_t>& tokens, int64_t columns) {
  // A norm that changes nothing, to the bit: x / sqrt(x^2 + 2^40) * 2^20.
  const std::vector<Bf16> weight(static_cast<size_t>(columns), __float2bfloat16(0x1p20f));
  return NormalisedEmbeddings(Matrix(table.data(), std::ssize(table) / columns, columns), tokens,
                              Matrix(weight.data(), columns, 1), 0x1p40);
}

std::vector<double> NormaliseOnCpu(const std::vector<float>& x, const std::vector<Bf16>& weight, double epsilon) {
  const int64_t columns = std::ssize(weight), rows = std::ssize(x) / columns;
  std::vector<int32_t> tokens(static_cast<size_t>(rows));
  std::iota(tokens.begin(), tokens.end(), 0);
  return NormalisedEmbeddings(Matrix(x.data(), rows, columns), tokens, Matrix(weight.data(), columns, 1), epsilon);
}

// The CPU has it only as the end of a projection: here of unit vectors, which pick a column of the weight each.
std::vector<double> SwiGluOnCpu(const std::vector<Bf16>& gate_up, int64_t rows) {
  const int64_t n = std::ssize(gate_up) / rows;
  std::vector<Bf16> weight(gate_up.size());  // [n, rows]
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < n; ++i) {
      weight[static_cast<size_t>(i * rows + row)] = gate_up[static_cast<size_t>(row * n + i)];
    }
  }
  const std::vector<Bf16> units = Identity(rows);
  std::vector<float> y(static_cast<size_t>(rows * n / 2));
  ProjectOnCpu({.x = units.data(),
                .w = weight.data(),
                .rows = static_cast<int32_t>(rows),
                .n = static_cast<int32_t>(n),
                .k = static_cast<int32_t>(rows),
                .y = y.data(),
                .y_stride = n / 2,
                .swiglu = true});
  return Doubles(y);
}

void ProjectOnCpu(const GemvArgs& args) {
  BATON_CHECK(!args.swiglu || args.bias == nullptr, "the CPU's gates and ups have no bias");
  WeightMemory memory;
  const Tensor half = Matrix(args.w, args.n / 2, args.k);
  const std::vector<Tensor> whole = {Matrix(args.w, args.n, args.k)};
  const std::vector<Tensor> biases(args.bias == nullptr ? 0 : 1, Matrix(args.bias, args.n, 1));
  const PackedWeight weight =
      args.swiglu ? PackedWeight::GateUp(memory, kKernels, half, Matrix(args.w + half.rows * args.k, half.rows, args.k))
                  : PackedWeight(memory, kKernels, whole, biases);
  const std::vector<float> x = Widen(args.x, int64_t{args.rows} * args.k);
  ThreadPool pool(1);
  baton::Linear(kKernels, pool)
      .Run(weight, {.data = x.data(), .stride = args.k, .rows = args.rows},
           {.y = args.y,
            .stride = args.y_stride,
            .then = args.swiglu ? LinearThen::kSwiGlu
                    : args.add  ? LinearThen::kAdd
                                : LinearThen::kStore});
}

// Rows as CpuOps::StoreKv takes them, but for the turns, which are the case's own, and so is each row's place in a
// block.
TurnedRows TurnOnCpu(const RopeStoreArgs& args) {
  const int64_t dim = args.kv.head_dim, heads = args.heads, kv_heads = args.kv.kv_heads;
  const int64_t columns = (heads + 2 * kv_heads) * dim;
  const KvLayout layout = {.layers = 1, .kv_heads = 1, .head_dim = dim};
  std::vector<Bf16> block(static_cast<size_t>(layout.BlockBytes()) / sizeof(Bf16));
  auto* k_out = reinterpret_cast<std::byte*>(block.data() + layout.KOffset(0, 0) / sizeof(Bf16));
  auto* v_out = reinterpret_cast<std::byte*>(block.data() + layout.VOffset(0, 0) / sizeof(Bf16));
  const std::vector<float> norms = args.q_norm == nullptr ? std::vector<float>() : Widen(args.q_norm, dim);
  const std::vector<float> k_norms = args.k_norm == nullptr ? std::vector<float>() : Widen(args.k_norm, dim);
  TurnedRows turned;
  for (int64_t row = 0; row < args.rows; ++row) {
    std::vector<float> qkv = Widen(args.qkv + row * columns, columns);
    for (int64_t head = 0; head < heads + kv_heads && !norms.empty(); ++head) {
      float* x = qkv.data() + head * dim;
      kKernels.rms_norm(x, head < heads ? norms.data() : k_norms.data(), args.epsilon, dim, x);
    }
    kKernels.rope(qkv.data(), args.rope + args.positions[row] * dim, dim, heads + kv_heads);
    turned.q.insert(turned.q.end(), qkv.begin(), qkv.begin() + heads * dim);
    const int64_t slot = std::max<int64_t>(args.slots[row], 0) % kBlockTokens;
    for (int64_t head = 0; head < kv_heads; ++head) {
      const float* k = qkv.data() + (heads + head) * dim;
      kKernels.store_k_bf16(k, dim, slot, k_out);
      kKernels.store_v_bf16(k + kv_heads * dim, dim, slot, v_out);
      for (int64_t i = 0; i < dim; ++i) {
        turned.k.push_back(Double(reinterpret_cast<const Bf16*>(k_out)[layout.KIndex(slot, i)]));
        turned.v.push_back(Double(reinterpret_cast<const Bf16*>(v_out)[layout.VIndex(slot, i)]));
      }
    }
  }
  return turned;
}

std::vector<double> AttendOnCpu(const AttentionArgs& args, int64_t slices) {
  const PagedKv& kv = args.kv;
  ModelConfig config;
  config.heads = args.heads;
  config.kv_heads = kv.kv_heads;
  config.head_dim = kv.head_dim;
  const KvLayout layout = {.layers = 1, .kv_heads = kv.kv_heads, .head_dim = kv.head_dim};

  // What the slices read, as the CPU keeps it; all else is NaN.
  std::vector<std::byte> slab(static_cast<size_t>(kv.blocks * layout.BlockBytes()), std::byte{0xff});
  std::vector<std::vector<const std::byte*>> tables;
  std::vector<baton::AttentionSlice> on_cpu;
  int64_t rows = 0;
  for (const AttentionSlice& slice : std::span(args.slices, static_cast<size_t>(slices))) {
    const int32_t* table = args.block_tables + slice.table;
    tables.emplace_back();
    for (int64_t i = 0; i < BlocksOf(slice.start + slice.rows); ++i) {
      tables.back().push_back(slab.data() + table[i] * layout.BlockBytes());
    }
    for (int64_t position = 0; position < slice.start + slice.rows; ++position) {
      const int64_t block = table[position / kBlockTokens], slot = position % kBlockTokens;
      std::byte* to = slab.data() + block * layout.BlockBytes();
      for (int32_t head = 0; head < kv.kv_heads; ++head) {
        const std::vector<float> k = Widen(kv.K(block, head) + slot * kv.head_dim, kv.head_dim);
        const std::vector<float> v = Widen(kv.V(block, head) + slot * kv.head_dim, kv.head_dim);
        kKernels.store_k_bf16(k.data(), kv.head_dim, slot, to + layout.KOffset(0, head));
        kKernels.store_v_bf16(v.data(), kv.head_dim, slot, to + layout.VOffset(0, head));
      }
    }
    on_cpu.push_back({.first_row = slice.first_row,
                      .rows = slice.rows,
                      .first_position = slice.start,
                      .blocks = tables.back().data()});
    rows += slice.rows;
  }

  const std::vector<float> q = Widen(args.q, rows * args.q_stride);
  std::vector<float> out(static_cast<size_t>(rows * args.heads * kv.head_dim));
  ThreadPool pool(1);
  CpuAttention attention(config, kKernels, pool, layout);
  attention.Plan(on_cpu);
  attention.Run(0, q.data(), args.q_stride, reinterpret_cast<std::byte*>(out.data()), /*out_is_bf16=*/false);
  return Doubles(out);
}

std::vector<double> SumOnCpu(const std::vector<std::vector<float>>& parts) {
  std::vector<std::vector<float>> sums = parts;
  const auto ranks = MakeMemoryCommunicators(static_cast<int>(parts.size()));
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < sums.size(); ++rank) {
    threads.emplace_back([&, rank] { ranks[rank]->AllReduceSum(sums[rank].data(), std::ssize(sums[rank])); });
  }
  threads.clear();  // they have ended
  return Doubles(sums.front());
}

}  // namespace baton::cuda
