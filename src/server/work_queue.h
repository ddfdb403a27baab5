// Threads for work that is too long for gRPC's own: tokenising a long prompt must not hold up other streams.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace baton {

class WorkQueue {
 public:
  WorkQueue(int threads, size_t capacity);
  ~WorkQueue();  // runs what is queued, then ends
  // False if `capacity` tasks wait already; the task is then untouched by anyone.
  bool TryRun(absl::AnyInvocable<void()> task);

 private:
  void Loop();

  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<absl::AnyInvocable<void()>> tasks_;  // guarded by mutex_
  bool stopping_ = false;                         // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace baton
