#include "kv/eviction_rank.h"

#include <algorithm>
#include <random>
#include <vector>

#include "catch.h"
#include "seeds.h"

namespace baton {
namespace {

absl::Time At(int64_t seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST_CASE("Protection ranks sessions below queued jobs") {
  const std::vector<Protection> sessions = {Protection::OfSession(absl::InfinitePast(), 9),
                                            Protection::OfSession(At(0), 1),
                                            Protection::OfSession(absl::InfiniteFuture(), 0)};
  const std::vector<Protection> jobs = {Protection::OfQueuedJob(-1000, absl::InfiniteFuture(), 9),
                                        Protection::OfQueuedJob(0, At(0), 1),
                                        Protection::OfQueuedJob(1000, absl::InfinitePast(), 0)};
  for (const Protection& job : jobs) {
    for (const Protection& session : sessions) CHECK(session < job);
  }
  for (const auto* kind : {&sessions, &jobs}) CHECK(std::ranges::is_sorted(*kind));
}

TEST_CASE("Protection orders sessions by end and jobs by queue order") {
  CHECK(Protection::OfSession(At(5), 1) < Protection::OfSession(At(6), 2));
  CHECK(Protection::OfSession(At(5), 2) < Protection::OfSession(At(5), 1));
  CHECK(Protection::OfQueuedJob(0, At(1), 1) < Protection::OfQueuedJob(1, At(2), 2));
  CHECK(Protection::OfQueuedJob(1, At(2), 1) < Protection::OfQueuedJob(1, At(1), 2));
  CHECK(Protection::OfQueuedJob(1, At(1), 2) < Protection::OfQueuedJob(1, At(1), 1));
  CHECK(Protection::OfQueuedJob(1, At(1), 2) == Protection::OfQueuedJob(1, At(1), 2));
}

// Returns true if `a` is evicted before `b`. This reference compares one criterion after another.
bool GoesFirst(const EvictionFacts& a, const EvictionFacts& b) {
  if (a.has_copy != b.has_copy) return a.has_copy;
  if (!a.protection != !b.protection) return !a.protection;
  if (a.protection && *a.protection != *b.protection) return *a.protection < *b.protection;
  const int64_t a_counts_as = a.last_use + a.credit, b_counts_as = b.last_use + b.credit;
  return a_counts_as != b_counts_as ? a_counts_as < b_counts_as : a.last_use < b.last_use;
}

TEST_CASE("EvictionRank orders blocks by copy, protection and counted use") {
  ForEachSeed(20, [](uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto protection = [&]() -> std::optional<Protection> {
      const uint64_t number = random() % 3;
      const absl::Time time = At(static_cast<int64_t>(random() % 3));
      switch (random() % 4) {
        case 0:
          return Protection::OfSession(time, number);
        case 1:
          return Protection::OfQueuedJob(static_cast<int32_t>(random() % 3) - 1, time, number);
        default:
          return std::nullopt;
      }
    };
    std::vector<EvictionFacts> blocks;
    for (int64_t use = -20; use < 20; ++use) {
      blocks.push_back({.has_copy = random() % 4 == 0,
                        .protection = protection(),
                        .last_use = use,
                        .credit = random() % 2 == 0 ? 8 : 0});
    }
    std::ranges::shuffle(blocks, random);
    for (const EvictionFacts& a : blocks) {
      for (const EvictionFacts& b : blocks) CHECK((EvictionRank(a) < EvictionRank(b)) == GoesFirst(a, b));
    }
  });
}

}  // namespace
}  // namespace baton
