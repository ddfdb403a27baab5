// The pushes of a connection that have no result yet.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

namespace baton {

// Gives each push exactly one result. A result may come from the thread of the connection, or from
// the end of the link while that thread hangs. Thread-safe.
class UcxPushes {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  // Returns an id of the push.
  uint64_t Begin(Done done) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(++begun_, std::move(done));
    return begun_;
  }
  // Returns true if the push has no result yet.
  bool IsWaiting(uint64_t push) const {
    const std::lock_guard lock(mutex_);
    return waiting_.contains(push);
  }
  // Calls the push's `done`. Does nothing if the push has a result.
  void End(uint64_t push, absl::Status status) {
    std::unique_lock lock(mutex_);
    auto ended = waiting_.extract(push);
    if (ended.empty()) return;
    ++calls_;
    lock.unlock();
    ended.mapped()(std::move(status));
    lock.lock();
    --calls_;
    returned_.notify_all();  // under the lock, because the link may be destroyed after it
  }
  // Ends all pushes. Returns when no `done` is being called on another thread.
  void EndAll(const absl::Status& status) {
    std::unique_lock lock(mutex_);
    while (!waiting_.empty()) {
      auto ended = waiting_.extract(waiting_.begin());
      lock.unlock();
      ended.mapped()(status);
      lock.lock();
    }
    returned_.wait(lock, [this] { return calls_ == 0; });
  }

 private:
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable returned_;
  uint64_t begun_ = 0;
  std::map<uint64_t, Done> waiting_;
  int64_t calls_ = 0;  // calls of `done` by End
};

}  // namespace baton
