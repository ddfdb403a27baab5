// Seeds of random tests. Every seed is fixed, so a failure in CI is a failure on every machine,
// unless it depends on the order in which threads run. Two variables change the seeds:
//   BATON_SEED=N           runs the test with seed N alone, to replay a failure
//   BATON_RANDOM_SEEDS=K   runs the test with K times as many seeds, from a random first seed
//                          (tools/check --nightly). model/sampling_distribution.h takes K alone.
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
  // Whether all seeds run. With BATON_SEED alone, a property over many seeds need not hold.
  bool all() const { return all_; }

 private:
  uint64_t first_;
  uint64_t count_;
  bool all_;
};

// Records the running seed for the command that reruns a failed test (test_main.cc).
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
