// The problem that kernels/gemv.h and cuBLASLt both solve: projections y = x w^T, with bias,
// activation and sum.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/gemv.h"
#include "test/kernels/device_array.h"
#include "test/kernels/random_values.h"

namespace baton::cuda {

// The operations on the product.
struct ProjectionForm {
  const char* name;
  bool bias, fp32, add, swiglu;
  int32_t padding;  // elements between rows of y
};
inline constexpr ProjectionForm kBias = {
    .name = " bias", .bias = true, .fp32 = false, .add = false, .swiglu = false, .padding = 0};
inline constexpr ProjectionForm kPlain = {
    .name = "", .bias = false, .fp32 = false, .add = false, .swiglu = false, .padding = 0};
inline constexpr ProjectionForm kAdd = {
    .name = " add", .bias = false, .fp32 = true, .add = true, .swiglu = false, .padding = 0};
inline constexpr ProjectionForm kFp32 = {
    .name = " fp32", .bias = false, .fp32 = true, .add = false, .swiglu = false, .padding = 5};
inline constexpr ProjectionForm kSwiGlu = {
    .name = " swiglu", .bias = false, .fp32 = false, .add = false, .swiglu = true, .padding = 0};

// A projection's operands on the host and on the device, and its expected result.
struct ProjectionProblem {
  ProjectionForm form;
  int32_t rows, n, k;
  std::vector<float> before;
  std::vector<Bf16> x, w, bias;
  DeviceArray<float> device_before, y32;
  DeviceArray<Bf16> device_x, device_w, device_bias, y16;

  ProjectionProblem(const ProjectionForm& with, int32_t rows_of_x, int32_t rows_of_w, int32_t columns,
                    std::mt19937_64& random)
      : form(with), rows(rows_of_x), n(rows_of_w), k(columns) {
    before = RandomFloats(int64_t{rows} * Stride(), random);
    for (float& value : before) value *= 8;
    x = RandomBf16(int64_t{rows} * k, random);
    w = RandomBf16(int64_t{n} * k, random);
    bias = RandomBf16(n, random);
    device_before = DeviceArray<float>(before);
    device_x = DeviceArray<Bf16>(x);
    device_w = DeviceArray<Bf16>(w);
    device_bias = DeviceArray<Bf16>(bias);
    y32 = DeviceArray<float>(before.size());
    y16 = DeviceArray<Bf16>(before.size());
  }

  int32_t Columns() const { return form.swiglu ? n / 2 : n; }  // of y
  int32_t Stride() const { return Columns() + form.padding; }
  // Returns the arguments of a launch, which point to device memory.
  GemvArgs Args() const {
    GemvArgs args = {.x = device_x.data(),
                     .w = device_w.data(),
                     .rows = rows,
                     .n = n,
                     .k = k,
                     .y_stride = Stride(),
                     .fp32_output = form.fp32,
                     .add = form.add,
                     .swiglu = form.swiglu};
    if (form.bias) args.bias = device_bias.data();
    args.y = form.fp32 ? static_cast<void*>(y32.data()) : y16.data();
    return args;
  }
  // For example "3 x 64 by 32 add".
  std::string Name() const {
    return std::to_string(rows) + " x " + std::to_string(k) + " by " + std::to_string(n) + form.name;
  }

  // Restores the values that the product is added to. Callers call it before each launch.
  cudaError_t Prepare(cudaStream_t stream) const {
    if (!form.add) return cudaSuccess;
    return cudaMemcpyAsync(y32.data(), device_before.data(), before.size() * sizeof(float), cudaMemcpyDeviceToDevice,
                           stream);
  }
  // Returns the error of the output on the device.
  double Error(const std::vector<double>& expected) const {
    return form.fp32 ? RelativeError(y32.ToHost(), expected) : RelativeError(y16.ToHost(), expected);
  }
  double Dot(int64_t row, int64_t of_w) const {
    double sum = form.bias ? Double(bias[of_w]) : 0;
    for (int32_t i = 0; i < k; ++i) sum += Double(x[row * k + i]) * Double(w[of_w * k + i]);
    return sum;
  }
  std::vector<double> Expected() const {
    std::vector<double> expected(before.size(), kUntouched);
    for (int32_t row = 0; row < rows; ++row) {
      for (int32_t column = 0; column < Columns(); ++column) {
        const int64_t at = int64_t{row} * Stride() + column;
        expected[at] = Dot(row, column);
        if (form.swiglu) expected[at] *= Dot(row, Columns() + column) / (1 + std::exp(-expected[at]));
        if (form.add) expected[at] += before[at];
      }
    }
    return expected;
  }
};

// Returns values for a bench. A million numbers repeat, because drawing more takes long.
inline DeviceArray<Bf16> RepeatedBf16(int64_t count, std::mt19937_64& random) {
  constexpr int64_t kPart = 1 << 20;
  const DeviceArray<Bf16> part(RandomBf16(kPart, random)), whole(count);
  for (int64_t at = 0; at < count; at += kPart) {
    const int64_t size = std::min(kPart, count - at);
    Must(cudaMemcpy(whole.data() + at, part.data(), size * sizeof(Bf16), cudaMemcpyDeviceToDevice));
  }
  return whole;
}

// Copies of a weight [n, k], so many that no cache holds them. Each launch reads another copy.
class BenchWeights {
 public:
  BenchWeights(int32_t n, int32_t k, std::mt19937_64& random)
      : size_(int64_t{n} * k), copies_(std::max<int64_t>(1, kBytes / (2 * size_))) {
    values_ = RepeatedBf16(size_ * copies_, random);
  }
  int64_t copies() const { return copies_; }
  const Bf16* Copy(int64_t launch) const { return values_.data() + launch % copies_ * size_; }

 private:
  static constexpr int64_t kBytes = int64_t{256} << 20;
  int64_t size_, copies_;
  DeviceArray<Bf16> values_;
};

}  // namespace baton::cuda
