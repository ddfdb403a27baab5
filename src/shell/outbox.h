// A queue whose items are added in order under a lock, and are handled in that order without the
// lock.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace baton {

// A queue that a thread drains after it has released the lock under which it added items.
class Drainable {
 public:
  virtual ~Drainable() = default;
  virtual void Drain() = 0;
};

// One thread at a time drains. If another thread is draining, it handles this thread's items too,
// so Drain may return before they are handled. The handler may add items and call Drain. Such items
// are handled after the current item. Once each thread that added items has returned from its
// Drain, all items are handled. Thread-safe.
template <typename Item>
class Outbox final : public Drainable {
 public:
  explicit Outbox(absl::AnyInvocable<void(Item&)> handle) : handle_(std::move(handle)) {}

  // Takes constant time. Items are handled in the order of these calls. REQUIRES: a call of Drain
  // follows.
  void Add(Item item) {
    const std::lock_guard lock(mutex_);
    added_.push_back(std::move(item));
  }

  // REQUIRES: the caller holds no lock that the handler takes.
  void Drain() override {
    std::unique_lock lock(mutex_);
    if (draining_) return;
    draining_ = true;
    while (!added_.empty()) {
      taken_.swap(added_);
      lock.unlock();
      for (Item& item : taken_) handle_(item);
      taken_.clear();
      lock.lock();
    }
    draining_ = false;
  }

 private:
  absl::AnyInvocable<void(Item&)> handle_;  // used by the draining thread only, like taken_
  std::vector<Item> taken_;
  std::mutex mutex_;
  std::vector<Item> added_;  // guarded by mutex_
  bool draining_ = false;    // guarded by mutex_
};

}  // namespace baton
