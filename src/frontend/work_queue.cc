#include "frontend/work_queue.h"

#include <utility>

namespace baton {

WorkQueue::WorkQueue(int threads, size_t capacity) : capacity_(capacity) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkQueue::TryRun(const std::string& tenant, absl::AnyInvocable<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    Line& line = lines_[tenant];
    if (line.tasks.size() >= capacity_) return false;
    if (line.tasks.empty()) line.since = ++events_;
    line.tasks.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

WorkQueue::Lines::iterator WorkQueue::Next() {
  auto next = lines_.end();
  for (auto it = lines_.begin(); it != lines_.end(); ++it) {
    const Line& line = it->second;
    if (line.tasks.empty()) continue;
    if (next == lines_.end() ||
        std::pair(line.running, line.since) < std::pair(next->second.running, next->second.since)) {
      next = it;
    }
  }
  return next;
}

void WorkQueue::RunOne(std::unique_lock<std::mutex>& lock, const std::string& tenant) {
  absl::AnyInvocable<void()> task;
  {
    Line& line = lines_[tenant];
    task = std::move(line.tasks.front());
    line.tasks.pop_front();
    ++line.running;
  }
  lock.unlock();
  task();
  // Destroying a task may take long too, so it happens without the lock.
  task = nullptr;
  lock.lock();
  Line& line = lines_[tenant];
  --line.running;
  line.since = ++events_;  // tenants that waited meanwhile come first
  if (line.running == 0 && line.tasks.empty()) lines_.erase(tenant);
}

void WorkQueue::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || Next() != lines_.end(); });
    const auto next = Next();
    if (next == lines_.end()) return;
    RunOne(lock, std::string(next->first));
  }
}

}  // namespace baton
