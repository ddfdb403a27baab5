// A process of a simulated cluster. It runs, is stopped, or has ended.
#pragma once

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "simulator/event_queue.h"

namespace baton {

// Every event that a process handles passes Run: arrivals of messages, timers, and ends of steps. A
// restarted worker is another process, with another object. Objects of processes that have ended
// must stay alive, because pending events refer to them.
class SimulatedProcess {
 public:
  SimulatedProcess(WorkerAddress address, EventQueue& queue) : address_(std::move(address)), queue_(queue) {}
  SimulatedProcess(const SimulatedProcess&) = delete;
  SimulatedProcess& operator=(const SimulatedProcess&) = delete;

  // Runs an event now. A stopped process runs it when it goes on, in the order of these calls, and
  // then sees the whole stop as one step of time. A process that has ended never runs it.
  void Run(EventQueue::Event event) {
    if (ended_) return;
    if (!stopped()) return event();
    waiting_.push_back(std::move(event));
  }
  // Schedule an event of the process.
  void At(absl::Time when, EventQueue::Event event) {
    queue_.At(when, [this, event = std::move(event)]() mutable { Run(std::move(event)); });
  }
  void After(absl::Duration wait, EventQueue::Event event) { At(queue_.Now() + wait, std::move(event)); }
  // Stops the process as SIGSTOP does, until SIGCONT at `until`. Its devices and its network card
  // go on.
  void StopUntil(absl::Time until) {
    if (until <= stopped_until_) return;
    stopped_until_ = until;
    queue_.At(until, [this] { GoOn(); });
  }
  // Ends the process as SIGKILL does.
  void End() { ended_ = true; }

  const WorkerAddress& address() const { return address_; }
  bool ended() const { return ended_; }
  bool stopped() const { return queue_.Now() < stopped_until_; }

 private:
  void GoOn() {
    if (stopped()) return;  // the stop has become longer
    for (EventQueue::Event& event : std::exchange(waiting_, {})) Run(std::move(event));
  }

  const WorkerAddress address_;
  EventQueue& queue_;
  absl::Time stopped_until_ = absl::InfinitePast();
  std::vector<EventQueue::Event> waiting_;  // until the process goes on
  bool ended_ = false;
};

}  // namespace baton
