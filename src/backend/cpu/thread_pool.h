// A pool of threads that split one loop at a time, for steps made of hundreds of short parallel
// loops.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace baton {

// Items [begin, end) of a loop, which one thread computes. `worker` is in [0, threads) and serves
// as an index of scratch memory.
struct Share {
  int64_t begin = 0;
  int64_t end = 0;
  int worker = 0;
};

// The caller is worker 0, so a pool of one thread starts no threads. Idle workers spin for a moment
// and then sleep. Thread-safe: concurrent loops run one after another. REQUIRES: a loop's body does
// not call ParallelFor of the same pool.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // threads >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls `body` for [0, n) in shares of `grain` >= 1 items, and returns when all shares are done.
  // The last share may be shorter. Each share runs exactly once, on any free thread. A worker that
  // is asleep or preempted does not delay the loop unless it holds a share.
  void ParallelFor(int64_t n, int64_t grain, absl::FunctionRef<void(Share)> body);

 private:
  using Body = absl::FunctionRef<void(Share)>;

  // The running loop. Only a thread that holds one of its shares reads it, because it cannot change
  // until that share is done.
  struct Loop {
    int64_t n = 0;
    int64_t grain = 1;
    const Body* body = nullptr;
  };

  void WorkerLoop(int worker);
  void RunShares(int worker);
  void AwaitShares();
  bool SharesLeft() const;

  // Held by the caller whose loop runs.
  std::mutex loop_mutex_;
  Loop loop_;
  // The number of shares of the loop in the upper half, and the next free share in the lower half.
  // A thread takes a share by compare-and-swap.
  alignas(64) std::atomic<uint64_t> progress_{0};
  alignas(64) std::atomic<int64_t> shares_done_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};
  absl::Mutex mutex_;
  absl::CondVar wake_;
  std::vector<std::thread> workers_;
};

}  // namespace baton
