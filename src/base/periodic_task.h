// Calls a function again and again on a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace baton {

class PeriodicTask {
 public:
  // The first time after a period, or at once.
  enum class First { kAfterPeriod, kAtOnce };
  PeriodicTask(std::chrono::milliseconds period, std::function<void()> task, First first = First::kAfterPeriod)
      : period_(period), task_(std::move(task)), thread_([this, first] { Loop(first); }) {}
  // Waits for a call that runs.
  ~PeriodicTask() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    stopped_.notify_one();
    thread_.join();
  }

 private:
  void Loop(First first) {
    if (first == First::kAtOnce) task_();
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, period_, [this] { return stopping_; })) {
      lock.unlock();
      task_();
      lock.lock();
    }
  }

  const std::chrono::milliseconds period_;
  const std::function<void()> task_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last: starts when the rest is ready
};

}  // namespace baton
