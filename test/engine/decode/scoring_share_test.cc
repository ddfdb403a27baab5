#include "engine/decode/scoring_share.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "catch.h"

namespace baton {
namespace {

constexpr absl::Duration kBound = absl::Milliseconds(25);
constexpr int64_t kSequences = 4;

// A device on which the sequences of a step take `batch`, and each prompt token takes `each`.
struct Device {
  absl::Duration batch, each;
  absl::Duration TimeOf(int64_t tokens) const { return batch + each * tokens; }
  // Runs steps beside sequences, with as many tokens as the share allows. Returns their times.
  std::vector<absl::Duration> Run(ScoringShare& share, int steps) const {
    std::vector<absl::Duration> times;
    for (int i = 0; i < steps; ++i) {
      const int32_t tokens = share.Tokens(kSequences);
      times.push_back(TimeOf(tokens));
      share.Add(kSequences, tokens, times.back());
    }
    return times;
  }
};

TEST_CASE("ScoringShare is the tokens with which a step takes the bound") {
  const auto tokens_on = [](Device device) {
    ScoringShare share({.step_tokens = 256, .step_time = kBound});
    const absl::Duration most = std::max({kBound, device.batch + device.batch / 4, device.TimeOf(1)});
    for (const absl::Duration took : device.Run(share, 105)) CHECK(took <= most);
    return share.Tokens(kSequences);
  };
  CHECK(tokens_on({absl::Milliseconds(8), absl::Milliseconds(1)}) == 17);
  CHECK(tokens_on({absl::Milliseconds(8), absl::Microseconds(100)}) == 170);
  CHECK(tokens_on({absl::Milliseconds(8), absl::Microseconds(10)}) == 256);
  CHECK(tokens_on({absl::Milliseconds(24), absl::Milliseconds(2)}) == 3);  // 24 / 4 / 2
  CHECK(tokens_on({absl::Milliseconds(80), absl::Microseconds(10)}) == 256);
  CHECK(tokens_on({absl::Milliseconds(80), absl::Seconds(10)}) == 1);
  CHECK(tokens_on({absl::ZeroDuration(), absl::ZeroDuration()}) == 256);
}

TEST_CASE("ScoringShare measures the sequences alone in every 17th step") {
  ScoringShare share({.step_tokens = 64, .step_time = kBound});
  const Device device{absl::Milliseconds(8), absl::Milliseconds(1)};
  for (int i = 0; i < 100; ++i) {
    CHECK((share.Tokens(kSequences) == 0) == (i % 17 == 0));
    device.Run(share, 1);
  }
  share.Add(kSequences, 0, device.batch);  // such a step may also come by itself
  for (int i = 0; i < 16; ++i) {
    CHECK(share.Tokens(kSequences) == 17);
    device.Run(share, 1);
  }
  CHECK(share.Tokens(kSequences) == 0);
}

// The time of a batch is a fixed cost and one for each sequence.
TEST_CASE("ScoringShare keeps the bound in each step while sequences come and leave") {
  ScoringShare share({.step_tokens = 256, .step_time = kBound});
  const absl::Duration fixed = absl::Milliseconds(2), each = absl::Microseconds(200);
  for (const int64_t sequences : {1, 2, 12, 60, 3, 1, 16, 15, 14}) {
    const Device device{fixed + absl::Milliseconds(sequences), each};
    const absl::Duration most = std::max(kBound, device.batch + device.batch / 4);
    int64_t computed = 0;
    for (int i = 0; i < 40; ++i) {
      const int32_t tokens = share.Tokens(sequences);
      computed += tokens;
      INFO(sequences << " sequences, step " << i << ", " << tokens << " tokens");
      // Until the larger batch is measured, its estimate may be above its time, by the fixed cost.
      CHECK(device.TimeOf(tokens) <= most + (i < 2 ? device.batch / 2 : absl::ZeroDuration()));
      share.Add(sequences, tokens, device.TimeOf(tokens));
    }
    CHECK(computed > 0);
    CHECK(device.TimeOf(share.Tokens(sequences)) > most - absl::Milliseconds(1));
  }
}

TEST_CASE("ScoringShare computes prompt tokens when the number of sequences changes in each step") {
  ScoringShare share({.step_tokens = 64, .step_time = kBound});
  int steps_with_tokens = 0;
  for (int64_t i = 0; i < 100; ++i) {
    const int32_t tokens = share.Tokens(1 + i % 7);
    steps_with_tokens += tokens > 0;
    share.Add(1 + i % 7, tokens, absl::Milliseconds(5) + tokens * absl::Milliseconds(1));
  }
  CHECK(steps_with_tokens >= 48);
}

TEST_CASE("ScoringShare is unchanged by two steps that another program delays") {
  ScoringShare share({.step_tokens = 64, .step_time = kBound});
  const Device device{absl::Milliseconds(5), absl::Microseconds(500)};
  device.Run(share, 105);
  CHECK(share.Tokens(kSequences) == 40);
  for (const int64_t tokens : {0, 40}) {
    share.Add(kSequences, 0, device.batch);
    for (int i = 0; i < 2; ++i) share.Add(kSequences, tokens, absl::Seconds(3));
    for (int i = 0; i < 10; ++i) {
      CHECK(share.Tokens(kSequences) == 40);
      device.Run(share, 1);
    }
  }
}

TEST_CASE("ScoringShare is the whole step when prompt tokens take no measurable time") {
  ScoringShare share({.step_tokens = 64, .step_time = kBound});
  share.Add(kSequences, 0, absl::Milliseconds(10));
  for (int i = 0; i < 5; ++i) share.Add(kSequences, share.Tokens(kSequences), absl::Milliseconds(9));
  CHECK(share.Tokens(kSequences) == 64);
}

TEST_CASE("ScoringShare is unchanged by the short last chunks of prompts") {
  ScoringShare share({.step_tokens = 64, .step_time = kBound});
  const Device device{absl::Milliseconds(5), absl::Microseconds(500)};
  device.Run(share, 105);
  for (int i = 0; i < 2; ++i) share.Add(kSequences, 3, device.TimeOf(3));
  CHECK(share.Tokens(kSequences) == 40);
}

TEST_CASE("ScoringShare is the whole step without sequences or without a bound") {
  ScoringShare bounded({.step_tokens = 64, .step_time = kBound});
  ScoringShare unbounded({.step_tokens = 64, .step_time = absl::ZeroDuration()});
  for (int i = 0; i < 40; ++i) {
    CHECK(bounded.Tokens(0) == 64);
    CHECK(unbounded.Tokens(0) == 64);
    CHECK(unbounded.Tokens(kSequences) == 64);
    bounded.Add(kSequences, bounded.Tokens(kSequences), absl::Hours(1));
    unbounded.Add(kSequences, 64, absl::Hours(1));
  }
}

TEST_CASE("ScoringShare stays within its limits whatever times steps take") {
  const std::vector<absl::Duration> times = {absl::ZeroDuration(), absl::Nanoseconds(1),     -absl::Seconds(1),
                                             absl::Hours(1),       absl::InfiniteDuration(), -absl::InfiniteDuration()};
  for (const int32_t most : {1, 5, 4096}) {
    for (const absl::Duration alone : times) {
      for (const absl::Duration took : times) {
        ScoringShare share({.step_tokens = most, .step_time = kBound});
        share.Add(kSequences, 0, alone);
        for (const int64_t tokens : {int64_t{1}, int64_t{most}, std::numeric_limits<int64_t>::max()}) {
          for (int i = 0; i < 5; ++i) share.Add(kSequences, tokens, took);
          CHECK(share.Tokens(kSequences) >= 1);
          CHECK(share.Tokens(kSequences) <= most);
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton
