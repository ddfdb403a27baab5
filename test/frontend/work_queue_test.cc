// A queue whose threads a test blocks, so that the test controls which tasks wait.
#include "frontend/work_queue.h"

#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "catch.h"

namespace baton {
namespace {

constexpr size_t kCapacity = 8;

// A queue, and the tasks that have begun in it, in order.
struct WatchedQueue {
  std::mutex mutex;
  std::vector<std::string> begun;
  std::optional<WorkQueue> queue;

  explicit WatchedQueue(int threads) { queue.emplace(threads, kCapacity); }

  bool Give(const std::string& tenant, const std::string& task) {
    return queue->TryRun(tenant, [this, task] {
      const std::lock_guard lock(mutex);
      begun.push_back(task);
    });
  }
  // Runs a task that ends when the returned promise is set. Returns after the task has begun.
  std::promise<void> Hold(const std::string& tenant) {
    std::promise<void> end;
    std::promise<void> begin;
    auto has_begun = begin.get_future();
    REQUIRE(queue->TryRun(tenant, [begin = std::move(begin), ended = end.get_future()]() mutable {
      begin.set_value();
      ended.wait();
    }));
    has_begun.wait();
    return end;
  }
  // Waits until all tasks have ended. Returns the tasks in the order in which they began.
  std::vector<std::string> Finish() {
    queue.reset();
    return begun;
  }
};

TEST_CASE("One tenant's tasks begin in order of arrival") {
  WatchedQueue w(1);
  auto held = w.Hold("a");
  for (const char* task : {"1", "2", "3"}) REQUIRE(w.Give("a", task));
  held.set_value();
  CHECK(w.Finish() == std::vector<std::string>{"1", "2", "3"});
}

TEST_CASE("Tenants alternate, however many tasks each has queued") {
  WatchedQueue w(1);
  auto held = w.Hold("a");
  for (const char* task : {"a1", "a2", "a3", "a4"}) REQUIRE(w.Give("a", task));
  for (const char* task : {"b1", "b2"}) REQUIRE(w.Give("b", task));
  REQUIRE(w.Give("c", "c1"));
  held.set_value();  // the tenant of this task ran last
  CHECK(w.Finish() == std::vector<std::string>{"b1", "c1", "a1", "b2", "a2", "a3", "a4"});
}

TEST_CASE("A tenant waits for at most one task of a tenant that fills all threads") {
  WatchedQueue w(2);
  auto first = w.Hold("flood"), second = w.Hold("flood");
  for (const char* task : {"f1", "f2", "f3"}) REQUIRE(w.Give("flood", task));
  REQUIRE(w.Give("other", "o1"));
  second.set_value();  // one thread runs all other tasks
  auto last = w.Hold("flood");
  {
    const std::lock_guard lock(w.mutex);
    CHECK(w.begun == std::vector<std::string>{"o1", "f1", "f2", "f3"});
  }
  first.set_value();
  last.set_value();
}

TEST_CASE("A tenant with running tasks comes after one without") {
  WatchedQueue w(2);
  auto busy = w.Hold("busy"), other = w.Hold("other");
  REQUIRE(w.Give("busy", "b1"));  // arrived first
  REQUIRE(w.Give("idle", "i1"));
  other.set_value();
  auto last = w.Hold("last");
  {
    const std::lock_guard lock(w.mutex);
    REQUIRE_FALSE(w.begun.empty());
    CHECK(w.begun.front() == "i1");
  }
  busy.set_value();
  last.set_value();
}

TEST_CASE("WorkQueue refuses a tenant with a full queue and no other tenant") {
  WatchedQueue w(1);
  auto held = w.Hold("a");
  for (size_t i = 0; i < kCapacity; ++i) CHECK(w.Give("a", "a"));
  CHECK_FALSE(w.Give("a", "refused"));
  for (size_t i = 0; i < kCapacity; ++i) CHECK(w.Give("b", "b"));
  CHECK_FALSE(w.Give("b", "refused"));
  held.set_value();
  CHECK(w.Finish().size() == 2 * kCapacity);
}

}  // namespace
}  // namespace baton
