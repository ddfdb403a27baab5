// Operations on rows: embedding, RMSNorm, rotary embedding with the KV store, SwiGLU.
#include <cmath>
#include <limits>

#include "kernels/embedding.h"
#include "kernels/rank_sum.h"
#include "kernels/rms_norm.h"
#include "kernels/rope_store.h"
#include "kernels/swiglu.h"
#include "test/kernels/device_array.h"
#include "test/kernels/kernel_case.h"
#include "test/kernels/random_values.h"

namespace baton::cuda {
namespace {

std::string Shape(int64_t rows, int64_t columns) { return std::to_string(rows) + " x " + std::to_string(columns); }

KernelCase Embedding(int32_t rows, int32_t columns, bool check, std::mt19937_64& random) {
  const int32_t vocab = 1000;
  const std::vector<Bf16> table = RandomBf16(int64_t{vocab} * columns, random);
  std::vector<int32_t> tokens(rows);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % vocab);
  const DeviceArray<Bf16> table_on_device(table);
  const DeviceArray<int32_t> tokens_on_device(tokens);
  const DeviceArray<float> out(size_t(rows) * columns);
  KernelCase result;
  result.name = "embedding " + Shape(rows, columns);
  result.bytes = 6.0 * rows * columns;
  result.tolerance = 0;
  result.launch = [=](cudaStream_t stream) {
    return LaunchEmbedding(table_on_device.data(), tokens_on_device.data(), rows, columns, out.data(), stream);
  };
  if (!check) return result;
  result.error = [=] {
    std::vector<double> expected;
    for (const int32_t token : tokens) {
      for (int32_t i = 0; i < columns; ++i) expected.push_back(Double(table[int64_t{token} * columns + i]));
    }
    return RelativeError(out.ToHost(), expected);
  };
  return result;
}

KernelCase Norm(int32_t rows, int32_t columns, bool check, std::mt19937_64& random) {
  const std::vector<float> x = RandomFloats(int64_t{rows} * columns, random);
  const std::vector<Bf16> weight = RandomBf16(columns, random);
  constexpr double kEpsilon = 1e-5;
  const DeviceArray<float> x_on_device(x);
  const DeviceArray<Bf16> weight_on_device(weight);
  const DeviceArray<Bf16> out(size_t(rows) * columns);
  KernelCase result;
  result.name = "rms_norm " + Shape(rows, columns);
  result.bytes = 6.0 * rows * columns;
  result.launch = [=](cudaStream_t stream) {
    return LaunchRmsNorm(x_on_device.data(), weight_on_device.data(), kEpsilon, rows, columns, out.data(), stream);
  };
  if (!check) return result;
  result.error = [=] {
    std::vector<double> expected;
    for (int64_t row = 0; row < rows; ++row) {
      double squares = 0;
      for (int64_t i = 0; i < columns; ++i) squares += double{x[row * columns + i]} * x[row * columns + i];
      const double scale = 1 / std::sqrt(squares / columns + kEpsilon);
      for (int64_t i = 0; i < columns; ++i) expected.push_back(x[row * columns + i] * scale * Double(weight[i]));
    }
    return RelativeError(out.ToHost(), expected);
  };
  return result;
}

KernelCase RankSum(int ranks, int64_t count, bool check, std::mt19937_64& random) {
  std::vector<DeviceArray<float>> memory;
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < ranks; ++rank) {
    values.push_back(RandomFloats(count, random));
    memory.emplace_back(values.back());
  }
  const DeviceArray<float> out(static_cast<size_t>(count));
  KernelCase result;
  result.name = "rank_sum " + std::to_string(ranks) + " x " + std::to_string(count);
  result.bytes = 4.0 * (ranks + 1) * static_cast<double>(count);
  result.tolerance = 0;
  result.launch = [=](cudaStream_t stream) {
    RankParts parts{.ranks = ranks};
    for (int rank = 0; rank < ranks; ++rank) parts.parts[rank] = memory[rank].data();
    return LaunchRankSum(parts, count, out.data(), stream);
  };
  if (!check) return result;
  result.error = [=] {
    std::vector<double> expected;
    for (int64_t i = 0; i < count; ++i) {
      float sum = values[0][i];
      for (int rank = 1; rank < ranks; ++rank) sum += values[rank][i];
      expected.push_back(sum);
    }
    return RelativeError(out.ToHost(), expected);
  };
  return result;
}

KernelCase SwiGlu(int32_t rows, int32_t columns, bool check, std::mt19937_64& random) {
  const std::vector<Bf16> gate_up = RandomBf16(2 * int64_t{rows} * columns, random);
  const DeviceArray<Bf16> gate_up_on_device(gate_up);
  const DeviceArray<Bf16> out(size_t(rows) * columns);
  KernelCase result;
  result.name = "swiglu " + Shape(rows, columns);
  result.bytes = 6.0 * rows * columns;
  result.launch = [=](cudaStream_t stream) {
    return LaunchSwiGlu(gate_up_on_device.data(), rows, columns, out.data(), stream);
  };
  if (!check) return result;
  result.error = [=] {
    std::vector<double> expected;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < columns; ++i) {
        const double gate = Double(gate_up[2 * row * columns + i]);
        expected.push_back(gate / (1 + std::exp(-gate)) * Double(gate_up[(2 * row + 1) * columns + i]));
      }
    }
    return RelativeError(out.ToHost(), expected);
  };
  return result;
}

struct RopeShape {
  int32_t rows, heads, kv_heads, head_dim;
  bool norm;
};

// One head of one row as the paper states it; `x` is the head's part of the projection.
std::vector<double> Turned(std::span<const Bf16> x, const std::vector<Bf16>* norm, double epsilon,
                           std::span<const float> rope) {
  std::vector<double> head;
  for (const Bf16 value : x) head.push_back(Double(value));
  const size_t half = head.size() / 2;
  if (norm != nullptr) {
    double squares = 0;
    for (const double value : head) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(head.size()) + epsilon);
    for (size_t i = 0; i < head.size(); ++i) head[i] *= scale * Double((*norm)[i]);
  }
  for (size_t i = 0; i < half; ++i) {
    const double low = head[i], high = head[half + i];
    head[i] = low * rope[i] - high * rope[half + i];
    head[half + i] = high * rope[i] + low * rope[half + i];
  }
  return head;
}

// q, then the slab: every element of it, so that a store beside its place shows.
KernelCase RopeStore(const RopeShape& shape, bool check, std::mt19937_64& random) {
  const int32_t columns = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  const int64_t blocks = BlocksOf(shape.rows) + 3, layers = 3, layer = 1;
  const int64_t layer_size = 2 * int64_t{shape.kv_heads} * kBlockTokens * shape.head_dim;
  const std::vector<Bf16> qkv = RandomBf16(int64_t{shape.rows} * columns, random);
  const std::vector<float> rope = RandomFloats(int64_t{4096} * shape.head_dim, random);
  const std::vector<Bf16> q_norm = RandomBf16(shape.head_dim, random), k_norm = RandomBf16(shape.head_dim, random);
  std::vector<int32_t> positions(shape.rows);
  for (int32_t& position : positions) position = static_cast<int32_t>(random() % 4096);
  std::vector<int64_t> slots = RandomOrder(blocks * kBlockTokens, random);
  slots.resize(shape.rows);
  if (check) slots[0] = -1;  // a row that only fills up the batch

  const DeviceArray<Bf16> projected(qkv), turned(qkv.size()), slab(blocks * layers * layer_size);
  const DeviceArray<Bf16> q_norm_on_device(q_norm), k_norm_on_device(k_norm);
  const DeviceArray<float> rope_on_device(rope);
  const DeviceArray<int32_t> positions_on_device(positions);
  const DeviceArray<int64_t> slots_on_device(slots);
  RopeStoreArgs args = {.qkv = turned.data(),
                        .rows = shape.rows,
                        .heads = shape.heads,
                        .positions = positions_on_device.data(),
                        .slots = slots_on_device.data(),
                        .rope = rope_on_device.data(),
                        .q_norm = shape.norm ? q_norm_on_device.data() : nullptr,
                        .k_norm = shape.norm ? k_norm_on_device.data() : nullptr,
                        .epsilon = 1e-6f,
                        .kv = {.slab = slab.data(),
                               .blocks = blocks,
                               .block_stride = layers * layer_size,
                               .layer_offset = layer * layer_size,
                               .kv_heads = shape.kv_heads,
                               .head_dim = shape.head_dim}};
  KernelCase result;
  result.name = "rope_store hd" + std::to_string(shape.head_dim) + " heads" + std::to_string(shape.heads) + "/" +
                std::to_string(shape.kv_heads) + (shape.norm ? " qk_norm x " : " x ") + std::to_string(shape.rows);
  result.bytes = 4.0 * shape.rows * columns;
  // Turns q in place: from the projection again each time in a check, from the last result in a bench.
  result.launch = [=, keep = std::tuple(q_norm_on_device, k_norm_on_device, rope_on_device, positions_on_device,
                                        slots_on_device, slab)](cudaStream_t stream) {
    if (check) {
      const cudaError_t copied =
          cudaMemcpyAsync(turned.data(), projected.data(), qkv.size() * sizeof(Bf16), cudaMemcpyDeviceToDevice, stream);
      if (copied != cudaSuccess) return copied;
    }
    return LaunchRopeStore(args, stream);
  };
  if (!check) return result;
  result.error = [=] {
    const int32_t dim = shape.head_dim;
    const auto head = [&](int64_t row, int32_t h) { return std::span(qkv).subspan(row * columns + h * dim, dim); };
    const auto rope_row = [&](int64_t row) { return std::span(rope).subspan(int64_t{positions[row]} * dim, dim); };
    std::vector<double> q, stored(slab.size(), kUntouched);
    std::vector<Bf16> q_got;
    const std::vector<Bf16> out = turned.ToHost();
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int32_t h = 0; h < shape.heads + 2 * shape.kv_heads; ++h) {
        const bool is_q = h < shape.heads, is_v = h >= shape.heads + shape.kv_heads;
        const std::vector<Bf16>* norm = !shape.norm ? nullptr : is_q ? &q_norm : &k_norm;
        std::vector<double> values = Turned(head(row, h), norm, 1e-6, rope_row(row));
        if (is_v) {
          values.clear();
          for (const Bf16 value : head(row, h)) values.push_back(Double(value));
        }
        if (is_q) {
          q.insert(q.end(), values.begin(), values.end());
          const auto got = std::span(out).subspan(row * columns + h * dim, dim);
          q_got.insert(q_got.end(), got.begin(), got.end());
        } else if (slots[row] >= 0) {
          const int64_t kv_head = h - shape.heads;  // K of each head, then V of each
          const int64_t at = slots[row] / kBlockTokens * layers * layer_size + layer * layer_size +
                             (kv_head * kBlockTokens + slots[row] % kBlockTokens) * dim;
          std::copy(values.begin(), values.end(), stored.begin() + at);
        }
      }
    }
    return std::max(RelativeError(q_got, q), RelativeError(slab.ToHost(), stored));
  };
  return result;
}

}  // namespace

std::vector<KernelCase> RowCases(CaseSize size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<KernelCase> cases;
  if (size == CaseSize::kCheck) {
    for (const auto& [rows, columns] : {std::pair{1, 64}, {5, 576}, {33, 2048}, {3, 4104}}) {
      cases.push_back(Embedding(rows, columns, true, random));
      cases.push_back(Norm(rows, columns, true, random));
      cases.push_back(SwiGlu(rows, columns, true, random));
    }
    for (const RopeShape& shape :
         {RopeShape{37, 9, 3, 64, false}, {18, 7, 1, 128, false}, {50, 4, 2, 128, true}, {3, 32, 8, 64, true}}) {
      cases.push_back(RopeStore(shape, true, random));
    }
    for (const int ranks : {1, 2, 3, kMaxRanks}) cases.push_back(RankSum(ranks, 4 * 45678, true, random));
    return cases;
  }
  for (const int32_t rows : {64, 8192}) {
    cases.push_back(Embedding(rows, 4096, false, random));
    cases.push_back(Norm(rows, 4096, false, random));
    cases.push_back(SwiGlu(rows, 14336, false, random));
    cases.push_back(RopeStore({rows, 32, 8, 128, false}, false, random));
    cases.push_back(RankSum(2, rows * 4096, false, random));
  }
  return cases;
}

}  // namespace baton::cuda
