#include "backend/cpu/thread_pool.h"

#include <algorithm>

#include "base/check.h"

namespace baton {
namespace {

constexpr int64_t kMaxShares = int64_t{1} << 31;
constexpr uint64_t Shares(uint64_t progress) { return progress >> 32; }
constexpr uint64_t NextShare(uint64_t progress) { return progress & 0xffffffff; }

// While a step runs, a loop follows the previous loop within microseconds. After the spins, a
// worker yields the processor, because there may be more threads than cores. After the yields, it
// sleeps.
constexpr int kSpins = 2000;
constexpr int kYields = 200;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits for done() by spinning and then yielding. Returns false if done() does not hold after
// `yields` yields.
template <class Done>
bool SpinUntil(Done done, int yields) {
  for (int i = 0; i < kSpins; ++i) {
    if (done()) return true;
    Pause();
  }
  for (int i = 0; i < yields; ++i) {
    if (done()) return true;
    std::this_thread::yield();
  }
  return done();
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  BATON_CHECK(threads >= 1, "a thread pool has at least the caller's thread");
  for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { WorkerLoop(worker); });
}

ThreadPool::~ThreadPool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_.store(true);
    wake_.SignalAll();
  }
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t n, int64_t grain, absl::FunctionRef<void(Share)> body) {
  BATON_CHECK(n >= 0 && grain >= 1, "a loop has n >= 0 items in shares of at least one");
  if (n == 0) return;
  const std::lock_guard running(loop_mutex_);
  const int64_t shares = (n - 1) / grain + 1;
  if (shares == 1 || workers_.empty()) {
    for (int64_t begin = 0; begin < n; begin += grain) body({begin, std::min(n, begin + grain), 0});
    return;
  }
  BATON_CHECK(shares < kMaxShares, "a loop has fewer than 2^31 shares");
  loop_ = {n, grain, &body};
  shares_done_.store(0, std::memory_order_relaxed);
  // Sequentially consistent, like sleepers_. Either a worker that is about to sleep sees the
  // shares, or this thread sees that the worker sleeps.
  progress_.store(static_cast<uint64_t>(shares) << 32);
  if (sleepers_.load() > 0) {
    absl::MutexLock lock(&mutex_);
    wake_.SignalAll();
  }
  RunShares(0);
  const auto all_done = [&] { return shares_done_.load(std::memory_order_acquire) == shares; };
  while (!SpinUntil(all_done, kYields)) {
  }
}

void ThreadPool::RunShares(int worker) {
  uint64_t progress = progress_.load(std::memory_order_acquire);
  while (NextShare(progress) < Shares(progress)) {
    if (!progress_.compare_exchange_weak(progress, progress + 1, std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
      continue;
    }
    const int64_t begin = static_cast<int64_t>(NextShare(progress)) * loop_.grain;
    (*loop_.body)({begin, std::min(loop_.n, begin + loop_.grain), worker});
    shares_done_.fetch_add(1, std::memory_order_acq_rel);
    progress = progress_.load(std::memory_order_acquire);
  }
}

bool ThreadPool::SharesLeft() const {
  const uint64_t progress = progress_.load();
  return NextShare(progress) < Shares(progress);
}

void ThreadPool::AwaitShares() {
  const auto ready = [&] { return SharesLeft() || stopping_.load(); };
  if (SpinUntil(ready, kYields)) return;
  absl::MutexLock lock(&mutex_);
  sleepers_.fetch_add(1);
  while (!ready()) wake_.Wait(&mutex_);
  sleepers_.fetch_sub(1);
}

void ThreadPool::WorkerLoop(int worker) {
  while (!stopping_.load()) {
    AwaitShares();
    RunShares(worker);
  }
}

}  // namespace baton
