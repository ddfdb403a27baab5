#include "shell/outbox.h"

#include <array>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "catch.h"

namespace baton {
namespace {

TEST_CASE("Outbox handles items of many threads once, in order of arrival") {
  constexpr int kThreads = 4, kEach = 5000;
  // The vector needs no lock, because one thread at a time handles items.
  std::vector<int> handled;
  Outbox<int> outbox([&](int& item) { handled.push_back(item); });
  std::mutex order;
  int next = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < kEach; ++j) {
          {
            const std::lock_guard lock(order);
            outbox.Add(next++);
          }
          outbox.Drain();
        }
      });
    }
  }
  // Each thread has returned, so no item is left.
  REQUIRE(handled.size() == kThreads * kEach);
  CHECK(std::ranges::is_sorted(handled));
}

TEST_CASE("Outbox handles other threads' items in the thread that drains") {
  absl::Notification in_first, go_on;
  std::vector<std::pair<int, std::thread::id>> handled;
  Outbox<int> outbox([&](int& item) {
    if (item == 1) {
      in_first.Notify();
      go_on.WaitForNotification();
    }
    handled.emplace_back(item, std::this_thread::get_id());
  });
  std::thread drainer([&] {
    outbox.Add(1);
    outbox.Drain();
  });
  in_first.WaitForNotification();
  outbox.Add(2);
  outbox.Drain();  // returns while the first item is being handled
  CHECK(handled.empty());
  const auto id = drainer.get_id();
  go_on.Notify();
  drainer.join();
  CHECK(handled == std::vector{std::pair(1, id), std::pair(2, id)});
}

TEST_CASE("Outbox handles an item that the handler adds after the current item") {
  std::vector<int> begun, ended;
  Outbox<int>* self = nullptr;
  Outbox<int> outbox([&](int& item) {
    begun.push_back(item);
    if (item < 3) {
      self->Add(item + 1);
      self->Drain();
    }
    ended.push_back(item);
  });
  self = &outbox;
  outbox.Add(1);
  outbox.Drain();
  CHECK(begun == std::vector{1, 2, 3});
  CHECK(ended == begun);
}

}  // namespace
}  // namespace baton
