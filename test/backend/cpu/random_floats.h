// Random operands for tests of kernels.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace baton {

// Returns `count` values of the standard normal distribution.
inline std::vector<float> RandomFloats(std::mt19937& random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

}  // namespace baton
