// Random inputs for kernels, and the error of an output against a float64 reference.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/paged_kv.h"

namespace baton::cuda {

inline double Double(float value) { return value; }
inline double Double(Bf16 value) { return __bfloat162float(value); }

// Returns values in [-1, 1). One draw of the generator makes four values, because a bench needs
// 10^8.
inline std::vector<float> RandomFloats(int64_t count, std::mt19937_64& random) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; i += 4) {
    const uint64_t bits = random();
    for (int64_t j = i; j < std::min(i + 4, count); ++j) {
      values[j] = static_cast<float>(static_cast<int16_t>(bits >> (16 * (j - i)))) / 32768;
    }
  }
  return values;
}

inline std::vector<Bf16> RandomBf16(int64_t count, std::mt19937_64& random) {
  const std::vector<float> values = RandomFloats(count, random);
  std::vector<Bf16> rounded(count);
  std::transform(values.begin(), values.end(), rounded.begin(), [](float value) { return __float2bfloat16(value); });
  return rounded;
}

// Returns the numbers of [0, count), shuffled.
inline std::vector<int64_t> RandomOrder(int64_t count, std::mt19937_64& random) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

inline int64_t BlocksOf(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

// The expected value of elements that must keep their NaN.
inline constexpr double kUntouched = std::numeric_limits<double>::infinity();

// Returns ||out - expected|| / ||expected||. Returns NaN if an expected element is not written, or
// if an element is written that must not be.
template <typename T>
double RelativeError(const std::vector<T>& out, const std::vector<double>& expected) {
  if (out.size() != expected.size()) return std::numeric_limits<double>::quiet_NaN();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double got = Double(out[i]);
    if (expected[i] == kUntouched) {
      if (!std::isnan(got)) return std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    difference += (got - expected[i]) * (got - expected[i]);
    norm += expected[i] * expected[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

}  // namespace baton::cuda
