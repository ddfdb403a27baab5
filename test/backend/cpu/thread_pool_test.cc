#include "backend/cpu/thread_pool.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"

namespace baton {
namespace {

// Returns true if the kernel lists all threads of this process as sleeping, except the calling
// thread.
bool OtherThreadsSleep() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    std::ifstream file(task.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    if (stat.find(") S ") == std::string::npos) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("ThreadPool runs every item of a loop once, in shares up to the given size") {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    REQUIRE(pool.threads() == threads);
    for (int64_t n : {0, 1, 2, 7, 64, 1000}) {
      for (int64_t grain : {1, 3, 64, 2000}) {
        std::vector<std::atomic<int>> done(n);
        std::atomic<int> outside{0};
        pool.ParallelFor(n, grain, [&](Share share) {
          outside += share.begin < 0 || share.end > n || share.begin >= share.end || share.end - share.begin > grain;
          outside += share.worker < 0 || share.worker >= threads;
          for (int64_t i = share.begin; i < share.end; ++i) ++done[i];
        });
        CAPTURE(threads, n, grain);
        REQUIRE(outside == 0);
        int64_t once = 0;
        for (const auto& count : done) once += count == 1;
        REQUIRE(once == n);
      }
    }
  }
}

TEST_CASE("ThreadPool shows each loop the writes of the previous loop") {
  ThreadPool pool(3);
  std::vector<int64_t> values(50, 0);
  for (int round = 0; round < 20000; ++round) {
    pool.ParallelFor(50, 4, [&](Share share) {
      // Reads elements that another thread may have written in the previous loop.
      for (int64_t i = share.begin; i < share.end; ++i) ++values[(i + round * 7) % 50];
    });
  }
  for (int64_t value : values) REQUIRE(value == 20000);
}

TEST_CASE("ThreadPool gives running shares different workers") {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<int> clashes{0};
  for (int round = 0; round < 200; ++round) {
    pool.ParallelFor(64, 1, [&](Share share) {
      clashes += inside[share.worker].fetch_add(1) != 0;
      inside[share.worker].fetch_sub(1);
    });
  }
  REQUIRE(clashes == 0);
}

TEST_CASE("ThreadPool runs loops of several callers one at a time") {
  ThreadPool pool(3);
  std::atomic<int> wrong{0};
  const auto call = [&](int64_t n) {
    std::vector<std::atomic<int>> done(n);
    for (int round = 1; round <= 2000; ++round) {
      pool.ParallelFor(n, 1, [&](Share share) { ++done[share.begin]; });
      for (const auto& count : done) wrong += count != round;
    }
  };
  std::vector<std::thread> callers;
  for (int64_t n = 2; n < 6; ++n) callers.emplace_back(call, n);
  for (std::thread& caller : callers) caller.join();
  REQUIRE(wrong == 0);
}

TEST_CASE("ThreadPool lets idle workers sleep and wakes them for the next loop") {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    // The loop ends only if both shares run at the same time, so the other worker must take part.
    std::atomic<int> arrived{0};
    pool.ParallelFor(2, 1, [&](Share) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
    REQUIRE(arrived == 2);
    while (!OtherThreadsSleep()) std::this_thread::yield();
  }
}

TEST_CASE("ThreadPool can be destroyed without any use") {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

}  // namespace baton
