// Threads for work that is too long for gRPC's own: tokenising a long prompt must not hold up other streams.
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

// Tenants take turns: whoever has the fewest tasks running is next, and of those, whoever waits longest for a turn. So
// a tenant that has none running waits for the end of one task, however many others have given, unless more such
// tenants came before it. A tenant's own tasks begin in the order in which they came.
class WorkQueue {
 public:
  // `capacity`: tasks of one tenant that wait. The tenants bound what waits in all.
  WorkQueue(int threads, size_t capacity);
  ~WorkQueue();  // runs what is queued, then ends
  // False if `capacity` tasks of the tenant wait already; the task is then untouched by anyone.
  bool TryRun(const std::string& tenant, absl::AnyInvocable<void()> task);

 private:
  struct Line {
    std::deque<absl::AnyInvocable<void()>> tasks{};
    int running = 0;
    uint64_t since = 0;  // it waits for its turn; in the order of events
  };
  using Lines = absl::flat_hash_map<std::string, Line>;

  void Loop();
  Lines::iterator Next();  // end: no task waits
  void RunOne(std::unique_lock<std::mutex>& lock, const std::string& tenant);

  const size_t capacity_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Lines lines_;  // by tenant, of those with a task that waits or runs
  uint64_t events_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton
