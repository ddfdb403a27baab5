// Seeds of random tests. Every seed is fixed, so that a failure in CI is a failure everywhere. Two variables change
// that:
//   BATON_SEED=N           the test runs with seed N alone, to replay a failure
//   BATON_RANDOM_SEEDS=K   the test runs with K times as many seeds, which begin at a random one (tools/check
//   --nightly)
#pragma once

#include <cstdint>
#include <optional>

#include "catch.h"

namespace baton {

class Seeds {
 public:
  // The seeds of a test that by default runs with `count` of them, from 1.
  explicit Seeds(uint64_t count);

  uint64_t first() const { return first_; }
  uint64_t count() const { return count_; }
  // Whether all seeds run. With BATON_SEED alone, what holds over many seeds need not hold.
  bool all() const { return all_; }

 private:
  uint64_t first_;
  uint64_t count_;
  bool all_;
};

// Records the seed that runs, for the command that reruns a failed test (test_main.cc).
void SetRunningSeed(std::optional<uint64_t> seed);
std::optional<uint64_t> RunningSeed();

// Calls body(seed) with each seed. Returns the seeds.
template <typename Body>
Seeds ForEachSeed(uint64_t count, Body&& body) {
  const Seeds seeds(count);
  for (uint64_t i = 0; i < seeds.count(); ++i) {
    const uint64_t seed = seeds.first() + i;
    SetRunningSeed(seed);
    INFO("BATON_SEED=" << seed);
    body(seed);
  }
  SetRunningSeed(std::nullopt);
  return seeds;
}

}  // namespace baton
