// The thread that drives an I/O-free core.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace baton {

// Calls `step` repeatedly on a thread of its own. `step` returns the time of the next call. The
// first call is immediate, and Wake makes the next call immediate. InfinitePast asks for another
// call at once. InfiniteFuture waits for Wake. A Wake during a step causes another step.
class StepLoop {
 public:
  // REQUIRES: the clock outlives the loop.
  StepLoop(const Clock& clock, absl::AnyInvocable<absl::Time()> step);
  ~StepLoop() { Stop(); }
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  void Wake();  // thread-safe
  // Waits for the running step to end. No step follows. Idempotent. REQUIRES: not called within a
  // step.
  void Stop();

 private:
  void Run();

  const Clock& clock_;
  absl::AnyInvocable<absl::Time()> step_;
  // A std::mutex, because ThreadSanitizer cannot see into Debian's build of absl::Mutex.
  std::mutex mutex_;
  std::condition_variable called_;
  bool woken_ = true;      // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last, so that it starts when the other members are ready
};

}  // namespace baton
