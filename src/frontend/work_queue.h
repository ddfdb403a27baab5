// A queue of tasks with its own threads. It runs work that takes too long for gRPC's threads.
// Tokenising a long prompt there would delay other streams.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"

namespace baton {

// The queue is fair between tenants. The next task belongs to the tenant with the fewest running
// tasks. Among equal tenants, the one that has waited longest comes first. A tenant without a
// running task therefore waits for one task to end, however many tasks other tenants have queued.
// If other such tenants wait already, it waits behind them. A tenant's own tasks begin in the order
// in which they arrived.
class WorkQueue {
 public:
  // `capacity` is an upper bound on the waiting tasks of one tenant. There is no bound on the sum
  // over all tenants.
  WorkQueue(int threads, size_t capacity);
  ~WorkQueue();  // runs the queued tasks and joins the threads
  // Returns false if `capacity` tasks of the tenant wait already. The task is then not moved from.
  bool TryRun(const std::string& tenant, absl::AnyInvocable<void()> task);

 private:
  struct Line {
    std::deque<absl::AnyInvocable<void()>> tasks{};
    int running = 0;
    // The number of the event since which the tenant has waited for a thread.
    uint64_t since = 0;
  };
  using Lines = absl::flat_hash_map<std::string, Line>;

  void Loop();
  Lines::iterator Next();  // end() if no task waits
  void RunOne(std::unique_lock<std::mutex>& lock, const std::string& tenant);

  const size_t capacity_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  Lines lines_;  // by tenant; only tenants with a waiting or running task
  uint64_t events_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton
