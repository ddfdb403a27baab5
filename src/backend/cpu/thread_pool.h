// Threads that split one loop at a time, for steps made of hundreds of short parallel loops.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace baton {

// Items [begin, end) of a loop, done by one thread. `worker` is in [0, threads): an index for scratch memory.
struct Share {
  int64_t begin = 0;
  int64_t end = 0;
  int worker = 0;
};

// The caller is worker 0, so a pool of one thread starts none. Idle workers spin for a moment, then sleep.
// Any thread may call ParallelFor, but none from within a loop: callers take turns, one loop at a time.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body for [0, n) in shares of `grain` >= 1 items (the last may be shorter), each exactly once, on whichever
  // thread is free, and returns when all are done. A worker that is asleep or preempted holds nothing up.
  void ParallelFor(int64_t n, int64_t grain, absl::FunctionRef<void(Share)> body);

 private:
  using Body = absl::FunctionRef<void(Share)>;

  // The running loop. Read only by a thread that holds one of its shares: until that share is done, it cannot change.
  struct Loop {
    int64_t n = 0;
    int64_t grain = 1;
    const Body* body = nullptr;
  };

  void WorkerLoop(int worker);
  void RunShares(int worker);
  void AwaitShares();
  bool SharesLeft() const;

  std::mutex turn_;  // held by the caller whose loop runs
  Loop loop_;
  // Shares of the loop in the upper half, the next unclaimed one in the lower: claimed by compare-and-swap.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> shares_done_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};
  absl::Mutex mutex_;
  absl::CondVar wake_;
  std::vector<std::thread> workers_;
};

}  // namespace baton
