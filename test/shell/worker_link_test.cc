#include "shell/worker_link.h"

#include <condition_variable>

#include "catch.h"
#include "fake_worker.h"
#include "log_capture.h"

namespace baton {
namespace {

using Link = WorkerLink<worker::v1::PrefillWorker, worker::v1::PrefillCommand, worker::v1::PrefillEvent>;

worker::v1::PrefillCommand CancelCommand(const RequestId& id) {
  worker::v1::PrefillCommand command;
  command.mutable_cancel()->set_request_id(id + "#");
  return command;
}

// A link to a worker, with counts of its events.
struct Linked {
  explicit Linked(const WorkerAddress& address)
      : link(address, WorkerRole::kPrefill, DialTcp, clock,
             {[this](const auto&, const auto&) { Count(attached); }, [this](const auto&) { Count(lost); },
              [this] { Count(closed); }}) {
    link.Tick();
  }
  void Count(int& what) {
    const std::lock_guard lock(mutex);
    ++what;
    changed.notify_all();
  }
  void Await(const int& what, int count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return what >= count; });
  }

  ManualClock clock;
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex. The only event of a fake worker is its introduction.
  int attached = 0, lost = 0, closed = 0;
  Link link;
};

TEST_CASE("WorkerLink sends commands in the order of their posts when it is drained") {
  FakePrefill worker(WorkerRole::kPrefill, 11);
  Linked l(worker.address());
  l.Await(l.attached, 1);
  int made = 0;
  for (const char* id : {"a", "b", "c"}) {
    l.link.Post([&made, id] {
      ++made;
      return CancelCommand(id);
    });
  }
  CHECK(made == 0);
  l.link.Drain();
  CHECK(made == 3);
  for (const char* id : {"a", "b", "c"}) CHECK(worker.Next().cancel().request_id() == id);
}

TEST_CASE("WorkerLink sends no command for a lost worker to its successor") {
  std::optional<FakePrefill> worker(std::in_place, WorkerRole::kPrefill, 11);
  const std::string address = worker->address();
  Linked l(address);
  l.Await(l.attached, 1);
  l.link.Post([] { return CancelCommand("old"); });  // another thread is about to drain it
  worker.reset();
  l.Await(l.closed, 1);
  l.link.Post([] { return CancelCommand("meanwhile"); });
  worker.emplace(WorkerRole::kPrefill, 12, address);
  // An attempt may fail while the channel still backs off.
  for (int closed = 1; true; ++closed) {
    l.clock.Advance(l.link.NextTick() - l.clock.Now());
    l.link.Tick();
    std::unique_lock lock(l.mutex);
    l.changed.wait(lock, [&] { return l.attached == 2 || l.closed > closed; });
    if (l.attached == 2) break;
  }
  l.link.Drain();
  l.link.Post([] { return CancelCommand("new"); });
  l.link.Drain();
  CHECK(worker->Next().cancel().request_id() == "new");
}

TEST_CASE("WorkerLink is due after its backoff and not while it is attached") {
  std::optional<FakePrefill> worker(std::in_place, WorkerRole::kPrefill, 11);
  Linked l(worker->address());
  l.Await(l.attached, 1);
  CHECK(l.link.NextTick() == absl::InfiniteFuture());
  worker.reset();
  l.Await(l.closed, 1);
  for (const int milliseconds : {100, 200, 400, 800, 1600, 2000, 2000}) {
    CHECK(l.link.NextTick() == l.clock.Now() + absl::Milliseconds(milliseconds));
    const int before = l.closed;
    l.clock.Advance(absl::Milliseconds(milliseconds) - absl::Nanoseconds(1));
    l.link.Tick();
    CHECK(l.link.NextTick() == l.clock.Now() + absl::Nanoseconds(1));  // too early, so no attempt
    l.clock.Advance(absl::Nanoseconds(1));
    l.link.Tick();
    l.Await(l.closed, before + 1);
  }
  CHECK(l.lost == l.closed);
}

TEST_CASE("WorkerLink logs the list when the worker has another role") {
  const LogCapture log;
  FakeDecode worker(WorkerRole::kDecode, 22);
  Linked l(worker.address());
  l.Await(l.closed, 1);
  CHECK(log.Count(StrCat(
            "worker ", worker.address(),
            ": cannot attach: UNIMPLEMENTED: the worker serves no prefill, but --prefill-workers has its address; "
            "list decode workers under --decode-workers")) == 1);
}

TEST_CASE("WorkerLink logs the code when no worker answers") {
  const LogCapture log;
  FakePrefill worker(WorkerRole::kPrefill, 11);
  worker.Die();
  Linked l(worker.address());
  l.Await(l.closed, 1);
  CHECK(log.Count(StrCat("worker ", worker.address(), ": cannot attach: UNAVAILABLE: ")) == 1);
}

TEST_CASE("WorkerLink logs the end of a connection and not a failed attempt when its worker stops") {
  const LogCapture log;
  std::optional<FakePrefill> worker(std::in_place, WorkerRole::kPrefill, 11);
  const std::string address = worker->address();
  Linked l(address);
  l.Await(l.attached, 1);
  worker.reset();
  l.Await(l.closed, 1);
  CHECK(log.Count(StrCat("worker ", address, ": the connection ended: ")) == 1);
  CHECK(log.Count(StrCat("worker ", address, ": cannot attach: ")) == 0);
}

}  // namespace
}  // namespace baton
