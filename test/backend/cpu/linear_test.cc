// Tests that compare the projections of every instruction set that this machine can run with sums
// in double precision.
#include "backend/cpu/linear.h"

#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/random_floats.h"
#include "catch.h"
#include "seeds.h"

namespace baton {
namespace {

Bf16 Round(float value) {
  Bf16 bits;
  kPortableKernels.round_to_bf16(&value, 1, &bits);
  return bits;
}

float Widen(Bf16 bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// A tensor that owns its values. The values are exact in the tensor's type.
struct OwnedTensor {
  OwnedTensor(std::mt19937& rng, DType dtype, int64_t rows, int64_t cols) : values(RandomFloats(rng, rows * cols)) {
    if (dtype == DType::kBF16) {
      for (float& v : values) {
        bits.push_back(Round(v));
        v = Widen(bits.back());
      }
    }
    const void* data = dtype == DType::kBF16 ? static_cast<const void*>(bits.data()) : values.data();
    tensor = {static_cast<const std::byte*>(data), dtype, rows, cols};
  }
  std::vector<float> values;
  std::vector<Bf16> bits;
  Tensor tensor;
};

// An expected value. The sum of the magnitudes of its terms bounds its rounding error.
struct Expected {
  double value = 0;
  double magnitude = 0;
};

// Returns the expected dot product. `rounded`: x is rounded to bf16, as in the formats with bf16
// activations.
Expected Dot(const float* x, const float* w, int64_t k, bool rounded) {
  Expected sum;
  for (int64_t i = 0; i < k; ++i) {
    const double product = static_cast<double>(rounded ? Widen(Round(x[i])) : x[i]) * w[i];
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

bool Close(double got, const Expected& expected) {
  return std::abs(got - expected.value) <= 1e-6 * std::max(1.0, expected.magnitude);
}

// Rows of float activations in the format that a weight needs.
struct Prepared {
  Prepared(const PackedWeight& weight, const std::vector<float>& x, int64_t row_count) {
    const int64_t columns = static_cast<int64_t>(x.size()) / row_count;
    activations = {x.data(), columns, row_count};
    if (weight.format() != WeightFormat::kBf16Pairs) return;
    rounded.resize(row_count * weight.k());
    for (int64_t i = 0; i < std::ssize(x); ++i) rounded[i / columns * weight.k() + i % columns] = Round(x[i]);
    activations = {rounded.data(), weight.k(), row_count};
  }
  std::vector<Bf16> rounded;
  Activations activations;
};

std::vector<float> Multiply(const KernelTable& kernels, ThreadPool& pool, const PackedWeight& weight,
                            const std::vector<float>& x, int64_t rows) {
  Linear linear(kernels, pool);
  std::vector<float> y(rows * weight.n(), NAN);
  const Prepared prepared(weight, x, rows);
  linear.Run(weight, prepared.activations, {y.data(), weight.n()});
  return y;
}

struct Shape {
  int64_t n, k;
};
constexpr std::array<Shape, 9> kShapes = {
    {{1, 1}, {15, 3}, {16, 2}, {17, 31}, {32, 64}, {100, 257}, {49, 511}, {272, 576}, {129, 1543}}};
constexpr std::array<int64_t, 12> kRows = {1, 2, 3, 4, 5, 6, 7, 12, 13, 25, 193, 200};

}  // namespace

TEST_CASE("A projection equals the product for each shape, type and instruction set") {
  ForEachSeed(1, [](uint64_t seed) {
    std::mt19937 rng(seed);
    ThreadPool pool(2);
    WeightMemory memory;
    for (const KernelTable* kernels : RunnableKernels()) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        for (const Shape& shape : kShapes) {
          const OwnedTensor w(rng, dtype, shape.n, shape.k);
          const OwnedTensor bias(rng, dtype, shape.n, 1);
          const PackedWeight weight(memory, *kernels, std::array{w.tensor}, std::array{bias.tensor});
          const int64_t rows = kRows[rng() % kRows.size()];
          const std::vector<float> x = RandomFloats(rng, rows * shape.k);
          const std::vector<float> y = Multiply(*kernels, pool, weight, x, rows);
          CAPTURE(kernels->name, dtype == DType::kBF16, shape.n, shape.k, rows);
          int64_t wrong = 0;
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t n = 0; n < shape.n; ++n) {
              Expected expected = Dot(x.data() + r * shape.k, w.values.data() + n * shape.k, shape.k,
                                      weight.format() == WeightFormat::kBf16Pairs);
              expected.value += bias.values[n];
              wrong += !Close(y[r * shape.n + n], expected);
            }
          }
          REQUIRE(wrong == 0);
        }
      }
    }
  });
}

TEST_CASE("A projection gives a row the same bits at any position and thread count") {
  ForEachSeed(1, [](uint64_t seed) {
    std::mt19937 rng(seed);
    ThreadPool one(1);
    WeightMemory memory;
    ThreadPool two(2);
    ThreadPool five(5);
    for (const KernelTable* kernels : RunnableKernels()) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        for (const Shape& shape : {Shape{49, 511}, Shape{272, 576}, Shape{40, 1543}}) {
          const OwnedTensor w(rng, dtype, shape.n, shape.k);
          const PackedWeight weight(memory, *kernels, std::array{w.tensor});
          const std::vector<float> row = RandomFloats(rng, shape.k);
          const std::vector<float> alone = Multiply(*kernels, one, weight, row, 1);
          for (int64_t rows : kRows) {
            std::vector<float> x = RandomFloats(rng, rows * shape.k);
            const int64_t position = rng() % rows;
            std::copy(row.begin(), row.end(), x.begin() + position * shape.k);
            ThreadPool& pool = rows % 3 == 0 ? one : rows % 3 == 1 ? two : five;
            const std::vector<float> y = Multiply(*kernels, pool, weight, x, rows);
            CAPTURE(kernels->name, dtype == DType::kBF16, shape.n, shape.k, rows, position, pool.threads());
            REQUIRE(std::memcmp(y.data() + position * shape.n, alone.data(), alone.size() * sizeof(float)) == 0);
          }
        }
      }
    }
  });
}

TEST_CASE("A projection stacks tensors and adds only the biases that exist") {
  std::mt19937 rng(1);
  ThreadPool pool(2);
  WeightMemory memory;
  const int64_t k = 40;
  for (const KernelTable* kernels : RunnableKernels()) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      const OwnedTensor q(rng, dtype, 24, k);
      const OwnedTensor v(rng, dtype, 9, k);
      const OwnedTensor v_bias(rng, dtype, 9, 1);
      const PackedWeight stacked(memory, *kernels, std::array{q.tensor, v.tensor}, std::array{Tensor{}, v_bias.tensor});
      REQUIRE(stacked.n() == 33);
      const std::vector<float> x = RandomFloats(rng, k);
      const std::vector<float> y = Multiply(*kernels, pool, stacked, x, 1);
      const PackedWeight q_alone(memory, *kernels, std::array{q.tensor});
      const PackedWeight v_alone(memory, *kernels, std::array{v.tensor}, std::array{v_bias.tensor});
      std::vector<float> expected = Multiply(*kernels, pool, q_alone, x, 1);
      const std::vector<float> second = Multiply(*kernels, pool, v_alone, x, 1);
      expected.insert(expected.end(), second.begin(), second.end());
      CAPTURE(kernels->name);
      REQUIRE(y == expected);
    }
  }
}

TEST_CASE("A projection that adds rounds only the sum and leaves the rest of y") {
  std::mt19937 rng(2);
  ThreadPool pool(2);
  WeightMemory memory;
  const Shape shape = {53, 70};
  const int64_t stride = 60;
  for (const KernelTable* kernels : RunnableKernels()) {
    for (int64_t rows : {1, 3, 5, 30}) {
      const OwnedTensor w(rng, DType::kBF16, shape.n, shape.k);
      const PackedWeight weight(memory, *kernels, std::array{w.tensor});
      const std::vector<float> x = RandomFloats(rng, rows * shape.k);
      const std::vector<float> product = Multiply(*kernels, pool, weight, x, rows);
      const std::vector<float> before = RandomFloats(rng, rows * stride);
      std::vector<float> y = before;
      Linear linear(*kernels, pool);
      const Prepared prepared(weight, x, rows);
      linear.Run(weight, prepared.activations, {y.data(), stride, LinearThen::kAdd});
      CAPTURE(kernels->name, rows);
      int64_t wrong = 0;
      for (int64_t i = 0; i < rows * stride; ++i) {
        const int64_t n = i % stride;
        wrong += y[i] != (n < shape.n ? before[i] + product[i / stride * shape.n + n] : before[i]);
      }
      REQUIRE(wrong == 0);
    }
  }
}

TEST_CASE("A gate and up projection ends with silu(gate) * up in fp32 and bf16") {
  std::mt19937 rng(3);
  ThreadPool pool(2);
  WeightMemory memory;
  const int64_t ffn = 55;
  const int64_t k = 66;
  for (const KernelTable* kernels : RunnableKernels()) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (int64_t rows : {1, 2, 4, 6, 40}) {
        const OwnedTensor gate(rng, dtype, ffn, k);
        const OwnedTensor up(rng, dtype, ffn, k);
        const PackedWeight weight = PackedWeight::GateUp(memory, *kernels, gate.tensor, up.tensor);
        const bool rounded = weight.format() == WeightFormat::kBf16Pairs;
        const std::vector<float> x = RandomFloats(rng, rows * k);
        std::vector<float> y(rows * ffn, NAN);
        std::vector<Bf16> y_bf16(rows * ffn, 0x7fff);
        Linear linear(*kernels, pool);
        const Prepared prepared(weight, x, rows);
        linear.Run(weight, prepared.activations, {y.data(), ffn, LinearThen::kSwiGlu});
        linear.Run(weight, prepared.activations, {y_bf16.data(), ffn, LinearThen::kSwiGlu, true});
        CAPTURE(kernels->name, rows, dtype == DType::kBF16);
        int64_t wrong = 0;
        for (int64_t i = 0; i < rows * ffn; ++i) {
          const float* row = x.data() + i / ffn * k;
          const double g = Dot(row, gate.values.data() + i % ffn * k, k, rounded).value;
          const double u = Dot(row, up.values.data() + i % ffn * k, k, rounded).value;
          const double expected = g / (1 + std::exp(-g)) * u;
          wrong += std::abs(y[i] - expected) > 1e-4 * (1 + std::abs(expected));
          wrong += y_bf16[i] != Round(y[i]);
        }
        REQUIRE(wrong == 0);
      }
    }
  }
}

TEST_CASE("Activations round to the nearest even bf16 and keep NaN") {
  std::vector<float> values = {0.0F, -0.0F, 1.0F, INFINITY, -INFINITY, 3.4e38F, 1e-40F, NAN};
  std::vector<Bf16> expected = {0, 0x8000, 0x3f80, 0x7f80, 0xff80, 0x7f80, 0x0001, 0x7fc0};
  for (uint32_t bits : {0x3f808000U, 0x3f818000U, 0x3f808001U, 0x3f807fffU, 0x7f800001U}) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    values.push_back(value);
  }
  expected.insert(expected.end(), {0x3f80, 0x3f82, 0x3f81, 0x3f80, 0x7fc0});
  for (int i = 0; i < 40; ++i)
    values.push_back(static_cast<float>(i) + 0.0625F), expected.push_back(Round(values.back()));
  for (const KernelTable* kernels : RunnableKernels()) {
    std::vector<Bf16> got(values.size());
    kernels->round_to_bf16(values.data(), static_cast<int64_t>(values.size()), got.data());
    CAPTURE(kernels->name);
    CHECK((got[6] == 1 || got[6] == 0));  // a denormal
    got[6] = 1;
    REQUIRE(got == expected);
  }
}

TEST_CASE("KernelsNamed returns a table by name and refuses one that cannot run here") {
  for (const KernelTable* kernels : RunnableKernels()) REQUIRE(*KernelsNamed(kernels->name) == kernels);
  REQUIRE(RunnableKernels().front() == &kPortableKernels);
  REQUIRE(&SelectKernels() == RunnableKernels().back());
  const absl::Status status = KernelsNamed("sse9").status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(status.message()).find("'sse9'") != std::string::npos);
}

}  // namespace baton
