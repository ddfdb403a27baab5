#include "backend/rank_barrier.h"

#include <atomic>
#include <thread>
#include <vector>

#include "catch.h"

namespace baton {
namespace {

constexpr int kRanks = 3;

// Runs `work` on one thread for each rank and waits for all threads.
template <class Work>
void OnAllRanks(Work work) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back([&work, rank] { work(rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("RankBarrier releases no rank before all ranks have arrived") {
  RankBarrier barrier(kRanks);
  constexpr int kMeetings = 1000;
  std::atomic<int> arrivals = 0;
  std::atomic<int> early = 0;
  OnAllRanks([&](int) {
    for (int meeting = 1; meeting <= kMeetings; ++meeting) {
      ++arrivals;
      if (!barrier.Arrive()) ++early;
      if (arrivals < meeting * kRanks) ++early;
    }
  });
  CHECK(early == 0);
  CHECK(arrivals == kMeetings * kRanks);
}

TEST_CASE("RankBarrier delays no rank while it is aborted and works again after Reset") {
  RankBarrier barrier(kRanks);
  std::atomic<int> met = 0;
  OnAllRanks([&](int rank) {
    if (rank == 0) {
      barrier.Abort();
    } else if (barrier.Arrive()) {
      ++met;
    }
  });
  CHECK(met == 0);
  CHECK_FALSE(barrier.Arrive());
  barrier.Reset();
  OnAllRanks([&](int) { met += barrier.Arrive() ? 1 : 0; });
  CHECK(met == kRanks);
}

}  // namespace baton
