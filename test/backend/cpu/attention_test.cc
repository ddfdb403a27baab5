// Tests that compare the attention kernels of every instruction set that this machine can run with
// softmax in double precision.
#include "backend/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "backend/cpu/buffer.h"
#include "backend/cpu/cpu_features.h"
#include "catch.h"
#include "kv/block_layout.h"

namespace baton {
namespace {

struct HeadShape {
  int64_t group, head_dim;
  bool bf16;
  KvFormat Format() const { return bf16 ? KvFormat::kBf16 : KvFormat::kF32; }
};

// The history of one KV head, in scattered blocks. Elements that are not written are NaN.
class History {
 public:
  History(std::mt19937& random, const HeadShape& shape, int64_t written) : shape_(shape), written_(written) {
    const int64_t blocks = (written + kBlockKeys - 1) / kBlockKeys;
    bytes_.assign(blocks * BlockBytes(), std::byte{0xff});
    std::vector<int64_t> order(blocks);
    for (int64_t i = 0; i < blocks; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    std::normal_distribution<float> normal;
    for (const int64_t at : order) blocks_.push_back(bytes_.data() + at * BlockBytes());
    for (int64_t position = 0; position < written; ++position) {
      for (int64_t i = 0; i < 2 * shape.head_dim; ++i) Set(position, i, normal(random));
    }
  }

  KvHead Head() const { return {blocks_.data(), 0, kBlockKeys * RowBytes(), written_}; }
  double K(int64_t position, int64_t i) const { return Get(position, i); }
  double V(int64_t position, int64_t i) const { return Get(position, shape_.head_dim + i); }

 private:
  int64_t RowBytes() const { return shape_.head_dim * (shape_.bf16 ? 2 : 4); }
  int64_t BlockBytes() const { return 2 * kBlockKeys * RowBytes(); }
  // Element i of a position: [0, head_dim) is K, and [head_dim, 2 * head_dim) is V.
  std::byte* At(int64_t position, int64_t i) const {
    const KvLayout layout = {.kv_heads = 1, .head_dim = shape_.head_dim, .format = shape_.Format()};
    const int64_t slot = position % kBlockKeys;
    const int64_t index = i < shape_.head_dim ? layout.KIndex(slot, i) : layout.VIndex(slot, i - shape_.head_dim);
    std::byte* half =
        const_cast<std::byte*>(blocks_[position / kBlockKeys]) + i / shape_.head_dim * kBlockKeys * RowBytes();
    return half + index * layout.ElementBytes();
  }
  void Set(int64_t position, int64_t i, float value) {
    Bf16 bits;
    kPortableKernels.round_to_bf16(&value, 1, &bits);
    shape_.bf16 ? std::memcpy(At(position, i), &bits, 2) : std::memcpy(At(position, i), &value, 4);
  }
  float Get(int64_t position, int64_t i) const {
    uint32_t bits = 0;
    if (shape_.bf16) {
      std::memcpy(reinterpret_cast<char*>(&bits) + 2, At(position, i), 2);
    } else {
      std::memcpy(&bits, At(position, i), 4);
    }
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }

  const HeadShape shape_;
  const int64_t written_;
  std::vector<std::byte> bytes_;
  std::vector<const std::byte*> blocks_;
};

struct State {
  State(int64_t rows, int64_t width) : max(rows), sums(rows * 16), values(rows * width) {}
  AttentionState View() { return {max.data(), sums.data(), values.data()}; }
  std::vector<float> max, sums, values;
};

int64_t Width(const HeadShape& shape) { return (shape.head_dim + 15) / 16 * 16; }

// Returns the attention over all spans of the history, as [tokens, group, width].
std::vector<float> Attend(const KernelTable& kernels, const HeadShape& shape, const History& history, const float* q,
                          int64_t tokens, int64_t first_position) {
  const int64_t rows = tokens * shape.group;
  Buffer<std::byte> scratch;
  AttentionArgs args;
  args.q = q;
  args.q_stride = shape.group * shape.head_dim;
  args.tokens = tokens;
  args.group = shape.group;
  args.head_dim = shape.head_dim;
  args.first_position = first_position;
  args.scale = static_cast<float>(1 / std::log(2.0) / std::sqrt(static_cast<double>(shape.head_dim)));
  args.kv = history.Head();
  args.scratch = scratch.Reserve(AttentionScratchBytes(rows, shape.head_dim));
  State total(rows, Width(shape)), part(rows, Width(shape));
  for (int64_t span = 0; span * kAttentionSpanKeys < first_position + tokens; ++span) {
    args.span = span;
    args.state = span == 0 ? total.View() : part.View();
    kernels.Kv(shape.Format()).attend(args);
    if (span > 0) kernels.merge_attention(total.View(), part.View(), rows, Width(shape));
  }
  kernels.finish_attention(total.View(), rows, Width(shape));
  return total.values;
}

std::vector<double> ExpectedAttention(const HeadShape& shape, const History& history, const float* q,
                                      int64_t position) {
  std::vector<double> weights(position + 1), out(shape.head_dim);
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t p = 0; p <= position; ++p) {
    for (int64_t i = 0; i < shape.head_dim; ++i) weights[p] += q[i] * history.K(p, i);
    weights[p] /= std::sqrt(static_cast<double>(shape.head_dim));
    max = std::max(max, weights[p]);
  }
  for (double& weight : weights) sum += weight = std::exp(weight - max);
  for (int64_t p = 0; p <= position; ++p) {
    for (int64_t i = 0; i < shape.head_dim; ++i) out[i] += weights[p] / sum * history.V(p, i);
  }
  return out;
}

std::vector<float> RandomQueries(std::mt19937& random, int64_t count) {
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> q(count);
  for (float& v : q) v = normal(random);
  return q;
}

const HeadShape kHeadShapes[] = {{3, 64, true}, {1, 128, true}, {7, 20, true},  {4, 16, true}, {5, 80, true},
                                 {2, 8, true},  {3, 64, false}, {4, 20, false}, {1, 8, false}};

}  // namespace

TEST_CASE("Attention equals softmax over a row's own past", "[one_thread]") {
  std::mt19937 random(5);
  for (const KernelTable* kernels : RunnableKernels()) {
    for (const HeadShape& shape : kHeadShapes) {
      const bool rounds_operands = shape.bf16 && kernels->bf16_format == WeightFormat::kBf16Pairs;
      for (const auto& [first, tokens] : {std::pair<int64_t, int64_t>{0, 1}, {0, 70}, {15, 3}, {600, 1}, {505, 40}}) {
        INFO(kernels->name << ", group " << shape.group << ", head_dim " << shape.head_dim << ", bf16 " << shape.bf16
                           << ", positions " << first << " + " << tokens);
        const History history(random, shape, first + tokens);
        const std::vector<float> q = RandomQueries(random, tokens * shape.group * shape.head_dim);
        const std::vector<float> got = Attend(*kernels, shape, history, q.data(), tokens, first);
        double error = 0;
        for (int64_t row = 0; row < tokens * shape.group; ++row) {
          const std::vector<double> expected =
              ExpectedAttention(shape, history, &q[row * shape.head_dim], first + row / shape.group);
          for (int64_t i = 0; i < shape.head_dim; ++i) {
            const double difference = std::abs(expected[i] - got[row * Width(shape) + i]);
            error = std::isfinite(difference) ? std::max(error, difference) : difference;
          }
        }
        CHECK(error < (rounds_operands ? 5e-2 : 2e-5));  // fails for NaN too
      }
    }
  }
}

TEST_CASE("Attention gives a row the same bits alone and beside other rows") {
  std::mt19937 random(6);
  for (const KernelTable* kernels : RunnableKernels()) {
    for (const HeadShape& shape : kHeadShapes) {
      const int64_t first = 490, tokens = 60;
      const History history(random, shape, first + tokens);
      const int64_t token_floats = shape.group * shape.head_dim;
      const std::vector<float> q = RandomQueries(random, tokens * token_floats);
      const std::vector<float> together = Attend(*kernels, shape, history, q.data(), tokens, first);
      for (int64_t token = 0; token < tokens; ++token) {
        INFO(kernels->name << ", group " << shape.group << ", head_dim " << shape.head_dim << ", position "
                           << first + token);
        const std::vector<float> alone = Attend(*kernels, shape, history, &q[token * token_floats], 1, first + token);
        const float* row = &together[token * shape.group * Width(shape)];
        CHECK(std::memcmp(alone.data(), row, alone.size() * sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("Attention neither overflows nor vanishes when scores are extreme") {
  std::mt19937 random(7);
  const HeadShape shape = {1, 16, false};
  const History history(random, shape, 200);
  for (const KernelTable* kernels : RunnableKernels()) {
    for (const float size : {0.0f, 1e-30f, 1e4f, 1e18f}) {
      INFO(kernels->name << ", queries of size " << size);
      std::vector<float> q = RandomQueries(random, shape.head_dim);
      for (float& v : q) v *= size;
      const std::vector<float> got = Attend(*kernels, shape, history, q.data(), 1, 199);
      const std::vector<double> expected = ExpectedAttention(shape, history, q.data(), 199);
      for (int64_t i = 0; i < shape.head_dim; ++i) CHECK(got[i] == Approx(expected[i]).margin(1e-4));
    }
  }
}

}  // namespace baton
