// Random choices of one seed.
#pragma once

#include <cstdint>
#include <random>

namespace baton {

template <typename Engine>
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(static_cast<typename Engine::result_type>(seed)) {}
  // A number of [low, high].
  int Uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  // A number of [0, limit). REQUIRES: limit > 0.
  int64_t Below(int64_t limit) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(limit)); }
  bool Chance(double p) { return std::bernoulli_distribution(p)(engine_); }

 private:
  Engine engine_;
};

}  // namespace baton
