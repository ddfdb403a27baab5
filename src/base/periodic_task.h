// A thread that calls one function periodically.
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
  // When the first call happens.
  enum class First { kAfterPeriod, kAtOnce };
  PeriodicTask(std::chrono::milliseconds period, std::function<void()> task, First first = First::kAfterPeriod)
      : period_(period), task_(std::move(task)), thread_([this, first] { Loop(first); }) {}
  // Stops the thread. Waits for a running call to return.
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
  // Declared last, because the thread uses the other members.
  std::thread thread_;
};

}  // namespace baton
