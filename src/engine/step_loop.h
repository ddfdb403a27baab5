// The thread that drives an I/O-free core.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace baton {

// Calls `step` on a thread of its own: at once, then when the time that it returned has come or Wake was called,
// whichever is first. InfinitePast: again at once. InfiniteFuture: only when woken. A Wake during a step is not lost.
class StepLoop {
 public:
  // The clock must outlive the loop.
  StepLoop(const Clock& clock, absl::AnyInvocable<absl::Time()> step);
  ~StepLoop() { Stop(); }
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  void Wake();  // thread-safe
  // Returns when the running step is over; no step follows. Idempotent; not from within a step.
  void Stop();

 private:
  void Run();

  const Clock& clock_;
  absl::AnyInvocable<absl::Time()> step_;
  // The standard library's, because ThreadSanitizer does not see into Debian's build of absl::Mutex.
  std::mutex mutex_;
  std::condition_variable called_;
  bool woken_ = true;      // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last: starts when the rest is ready
};

}  // namespace baton
