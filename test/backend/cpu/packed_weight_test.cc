#include "backend/cpu/packed_weight.h"

#include <array>
#include <cstring>
#include <new>
#include <vector>

#include "backend/cpu/weight_memory.h"
#include "catch.h"

namespace baton {
namespace {

// A matrix whose element (row, column) is 100 * row + column. Small elements are exact in bf16.
struct Numbered {
  Numbered(DType dtype, int64_t rows, int64_t cols) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < cols; ++c) floats.push_back(Value(row, c));
    }
    bits.resize(floats.size());
    kPortableKernels.round_to_bf16(floats.data(), static_cast<int64_t>(floats.size()), bits.data());
    const void* data = dtype == DType::kF32 ? static_cast<const void*>(floats.data()) : bits.data();
    tensor = {static_cast<const std::byte*>(data), dtype, rows, cols};
  }
  static float Value(int64_t row, int64_t column) { return static_cast<float>(row * 3 + column); }
  std::vector<float> floats;
  std::vector<Bf16> bits;
  Tensor tensor;
};

float FloatOf(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

}  // namespace

TEST_CASE("WeightMemory gives zeroed, aligned pieces that do not overlap") {
  WeightMemory memory;
  std::vector<std::pair<std::byte*, size_t>> pieces;
  for (size_t bytes : {size_t{1}, size_t{64}, size_t{100}, size_t{40} << 20, size_t{30} << 20, size_t{5}}) {
    std::byte* piece = memory.Allocate(bytes);
    REQUIRE(reinterpret_cast<uintptr_t>(piece) % 64 == 0);
    bool zero = true;
    for (size_t i = 0; i<bytes; i += bytes> 4096 ? 4096 : 1) zero &= piece[i] == std::byte{0};
    REQUIRE(zero);
    std::memset(piece, static_cast<int>(pieces.size()) + 1, bytes);
    pieces.emplace_back(piece, bytes);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto [piece, bytes] = pieces[i];
    REQUIRE(piece[0] == std::byte(i + 1));
    REQUIRE(piece[bytes - 1] == std::byte(i + 1));
  }
}

TEST_CASE("WeightMemory throws when there is no memory") {
  WeightMemory memory;
  CHECK_THROWS_AS(memory.Allocate(size_t{1} << 60), std::bad_alloc);
}

TEST_CASE("PackedWeight has its format's layout and zeros beyond the tensor") {
  WeightMemory memory;
  const int64_t rows = 35;
  const int64_t cols = 131;
  for (WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kBf16Pairs}) {
    KernelTable kernels = kPortableKernels;
    kernels.bf16_format = format;
    const Numbered matrix(format == WeightFormat::kF32 ? DType::kF32 : DType::kBF16, rows, cols);
    const PackedWeight weight(memory, kernels, std::array{matrix.tensor});
    REQUIRE(weight.format() == format);
    REQUIRE(weight.n() == rows);
    REQUIRE(weight.panels() == 2);
    REQUIRE(weight.k() == (format == WeightFormat::kBf16Pairs ? 132 : 131));
    int64_t wrong = 0;
    for (int64_t out = 0; out < 64; ++out) {
      for (int64_t c = 0; c < weight.k(); ++c) {
        const int64_t panel = out / 32 * 32 * weight.k();
        const int64_t lane = out % 32;
        float got = 0;
        if (format == WeightFormat::kF32) {
          got = static_cast<const float*>(weight.data())[panel + c * 32 + lane];
        } else {
          const int64_t offset =
              format == WeightFormat::kBf16 ? (c * 16 + lane % 16) * 2 + lane / 16 : (c / 2 * 32 + lane) * 2 + c % 2;
          got = FloatOf(static_cast<const Bf16*>(weight.data())[panel + offset]);
        }
        const bool inside = out < rows && c < cols;
        Bf16 rounded = 0;
        const float value = inside ? Numbered::Value(out, c) : 0.0F;
        kPortableKernels.round_to_bf16(&value, 1, &rounded);
        wrong += got != (format == WeightFormat::kF32 ? value : FloatOf(rounded));
      }
    }
    CAPTURE(static_cast<int>(format));
    REQUIRE(wrong == 0);
  }
}

TEST_CASE("PackedWeight makes the whole stack f32 when one tensor is f32") {
  WeightMemory memory;
  const Numbered q(DType::kBF16, 3, 8);
  const Numbered k(DType::kF32, 2, 8);
  KernelTable kernels = kPortableKernels;
  kernels.bf16_format = WeightFormat::kBf16Pairs;
  const PackedWeight weight(memory, kernels, std::array{q.tensor, k.tensor});
  REQUIRE(weight.format() == WeightFormat::kF32);
  const auto* data = static_cast<const float*>(weight.data());
  REQUIRE(data[5 * 32 + 1] == Numbered::Value(1, 5));
  REQUIRE(data[5 * 32 + 4] == Numbered::Value(1, 5));
  REQUIRE(weight.bias() == nullptr);
}

TEST_CASE("PackedWeight puts gate and up into the same panels, sixteen of each") {
  WeightMemory memory;
  const Numbered gate(DType::kF32, 20, 4);
  const Numbered up(DType::kF32, 20, 4);
  const PackedWeight weight = PackedWeight::GateUp(memory, kPortableKernels, gate.tensor, up.tensor);
  REQUIRE(weight.n() == 40);
  REQUIRE(weight.panels() == 2);
  const auto* second = static_cast<const float*>(weight.data()) + 32 * weight.k();
  REQUIRE(second[3 * 32 + 2] == Numbered::Value(18, 3));
  REQUIRE(second[3 * 32 + 16 + 2] == Numbered::Value(18, 3));
  REQUIRE(second[3 * 32 + 4] == 0);  // gate has no row 20
}

}  // namespace baton
