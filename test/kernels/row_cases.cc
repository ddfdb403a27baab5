// Operations on rows: embedding, RMSNorm, rotary embedding with the KV store, SwiGLU, and the mask
// of logits.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <span>

#include "kernels/embedding.h"
#include "kernels/logit_mask.h"
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

// Computes one head of one row as the paper defines it. `x` is the head's part of the projection.
std::vector<double> Turned(std::span<const Bf16> x, const Bf16* norm, double epsilon, std::span<const float> rope) {
  std::vector<double> head;
  for (const Bf16 value : x) head.push_back(Double(value));
  const size_t half = head.size() / 2;
  if (norm != nullptr) {
    double squares = 0;
    for (const double value : head) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(head.size()) + epsilon);
    for (size_t i = 0; i < head.size(); ++i) head[i] *= scale * Double(norm[i]);
  }
  for (size_t i = 0; i < half; ++i) {
    const double low = head[i], high = head[half + i];
    head[i] = low * rope[i] - high * rope[half + i];
    head[half + i] = high * rope[i] + low * rope[half + i];
  }
  return head;
}

struct TurnedRows {
  std::vector<double> q;     // [rows, heads, head_dim]
  std::vector<double> k, v;  // [rows, kv_heads, head_dim], as they are stored
};

TurnedRows TurnInFloat64(const RopeStoreArgs& args) {
  const auto dim = static_cast<size_t>(args.kv.head_dim);
  TurnedRows turned;
  const Bf16* x = args.qkv;
  for (int64_t row = 0; row < args.rows; ++row) {
    const std::span rope(args.rope + args.positions[row] * args.kv.head_dim, dim);
    for (int32_t h = 0; h < args.heads + 2 * args.kv.kv_heads; ++h, x += dim) {
      const bool is_q = h < args.heads, is_k = !is_q && h < args.heads + args.kv.kv_heads;
      std::vector<double> head;
      if (is_q || is_k) {
        head = Turned({x, dim}, is_q ? args.q_norm : args.k_norm, args.epsilon, rope);
      } else {
        std::transform(x, x + dim, std::back_inserter(head), [](Bf16 value) { return Double(value); });
      }
      std::vector<double>& to = is_q ? turned.q : is_k ? turned.k : turned.v;
      to.insert(to.end(), head.begin(), head.end());
    }
  }
  return turned;
}

// The operands of the rotary embedding and the KV store, on the host and on the device.
struct RopeProblem {
  RopeShape shape;
  int32_t columns;
  int64_t blocks, layer_size, block_stride, layer_offset;
  std::vector<Bf16> qkv, q_norm, k_norm;
  std::vector<float> rope;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  DeviceArray<Bf16> projected, turned, slab, device_q_norm, device_k_norm;
  DeviceArray<float> device_rope;
  DeviceArray<int32_t> device_positions;
  DeviceArray<int64_t> device_slots;

  RopeProblem(const RopeShape& rows, bool check, std::mt19937_64& random)
      : shape(rows), columns((rows.heads + 2 * rows.kv_heads) * rows.head_dim) {
    constexpr int32_t kPositions = 4096;
    constexpr int64_t kLayers = 3;
    blocks = BlocksOf(shape.rows) + 3;
    layer_size = 2 * int64_t{shape.kv_heads} * kBlockTokens * shape.head_dim;
    block_stride = kLayers * layer_size;
    layer_offset = layer_size;  // the second layer
    qkv = RandomBf16(int64_t{shape.rows} * columns, random);
    rope = RandomFloats(int64_t{kPositions} * shape.head_dim, random);
    q_norm = RandomBf16(shape.head_dim, random);
    k_norm = RandomBf16(shape.head_dim, random);
    positions.resize(shape.rows);
    for (int32_t& position : positions) position = static_cast<int32_t>(random() % kPositions);
    slots = RandomOrder(blocks * kBlockTokens, random);
    slots.resize(shape.rows);
    if (check) slots[0] = -1;  // a row of padding
    projected = DeviceArray<Bf16>(qkv);
    turned = DeviceArray<Bf16>(qkv.size());
    slab = DeviceArray<Bf16>(blocks * block_stride);
    device_q_norm = DeviceArray<Bf16>(q_norm);
    device_k_norm = DeviceArray<Bf16>(k_norm);
    device_rope = DeviceArray<float>(rope);
    device_positions = DeviceArray<int32_t>(positions);
    device_slots = DeviceArray<int64_t>(slots);
  }

  RopeStoreArgs Args() const {
    return {.qkv = turned.data(),
            .rows = shape.rows,
            .heads = shape.heads,
            .positions = device_positions.data(),
            .slots = device_slots.data(),
            .rope = device_rope.data(),
            .q_norm = shape.norm ? device_q_norm.data() : nullptr,
            .k_norm = shape.norm ? device_k_norm.data() : nullptr,
            .epsilon = 1e-6f,
            .kv = {.slab = slab.data(),
                   .blocks = blocks,
                   .block_stride = block_stride,
                   .layer_offset = layer_offset,
                   .kv_heads = shape.kv_heads,
                   .head_dim = shape.head_dim}};
  }

  // Returns the error of q and of the whole slab on the device, against the rotation `turn` on the
  // same rows. The whole slab shows stores at wrong addresses, too.
  double Error(TurnedRows (*turn)(const RopeStoreArgs&)) const {
    std::vector<Bf16> on_host = qkv;
    RopeStoreArgs args = Args();
    args.qkv = on_host.data();
    args.positions = positions.data();
    args.slots = slots.data();
    args.rope = rope.data();
    if (shape.norm) {
      args.q_norm = q_norm.data();
      args.k_norm = k_norm.data();
    }
    const TurnedRows expected = turn(args);
    const int64_t dim = shape.head_dim, q_columns = shape.heads * dim;
    const std::vector<Bf16> out = turned.ToHost();
    std::vector<Bf16> q;
    std::vector<double> stored(slab.size(), kUntouched);
    for (int64_t row = 0; row < shape.rows; ++row) {
      q.insert(q.end(), out.begin() + row * columns, out.begin() + row * columns + q_columns);
      if (slots[row] < 0) continue;
      for (int64_t head = 0; head < shape.kv_heads; ++head) {
        const int64_t from = (row * shape.kv_heads + head) * dim;
        const int64_t k_at = slots[row] / kBlockTokens * block_stride + layer_offset +
                             (head * kBlockTokens + slots[row] % kBlockTokens) * dim;
        std::copy_n(&expected.k[from], dim, &stored[k_at]);
        std::copy_n(&expected.v[from], dim, &stored[k_at + layer_size / 2]);
      }
    }
    return std::max(RelativeError(q, expected.q), RelativeError(slab.ToHost(), stored));
  }
};

KernelCase RopeStore(const RopeShape& shape, bool check, std::mt19937_64& random) {
  const auto problem = std::make_shared<const RopeProblem>(shape, check, random);
  KernelCase result;
  result.name = "rope_store hd" + std::to_string(shape.head_dim) + " heads" + std::to_string(shape.heads) + "/" +
                std::to_string(shape.kv_heads) + (shape.norm ? " qk_norm x " : " x ") + std::to_string(shape.rows);
  result.bytes = 4.0 * shape.rows * problem->columns;
  // Rotates q in place. A check restores the projection each time, and a bench rotates the last
  // result.
  result.launch = [=](cudaStream_t stream) {
    if (check) {
      const cudaError_t copied = cudaMemcpyAsync(problem->turned.data(), problem->projected.data(),
                                                 problem->qkv.size() * sizeof(Bf16), cudaMemcpyDeviceToDevice, stream);
      if (copied != cudaSuccess) return copied;
    }
    return LaunchRopeStore(problem->Args(), stream);
  };
  if (!check) return result;
  result.error = [=] { return problem->Error(TurnInFloat64); };
  return result;
}

// Masks every third id of a row, and the last one.
KernelCase LogitMask(int32_t rows, int32_t vocab, bool check, std::mt19937_64& random) {
  std::vector<int32_t> ids;
  for (int32_t id = 1; id < vocab - 1; id += 3) ids.push_back(id);
  ids.push_back(vocab - 1);
  const auto count = static_cast<int32_t>(ids.size());
  const int64_t stride = vocab + 5;
  std::vector<float> expected = RandomFloats(rows * stride, random);
  const DeviceArray<float> logits(expected);
  const DeviceArray<int32_t> ids_on_device(ids);
  KernelCase result;
  result.name = "logit_mask " + Shape(rows, vocab);
  result.bytes = 4.0 * rows * count;
  result.tolerance = 0;
  result.launch = [=](cudaStream_t stream) {
    return LaunchLogitMask(ids_on_device.data(), count, rows, stride, logits.data(), stream);
  };
  if (!check) return result;
  for (int64_t row = 0; row < rows; ++row) {
    for (const int32_t id : ids) expected[row * stride + id] = -std::numeric_limits<float>::infinity();
  }
  result.error = [=] { return logits.ToHost() == expected ? 0.0 : 1.0; };
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
    for (const int32_t vocab : {2, 767, 3001}) cases.push_back(LogitMask(7, vocab, true, random));
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
