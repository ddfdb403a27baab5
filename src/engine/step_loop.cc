#include "engine/step_loop.h"

#include <algorithm>
#include <utility>

namespace baton {

StepLoop::StepLoop(const Clock& clock, absl::AnyInvocable<absl::Time()> step)
    : clock_(clock), step_(std::move(step)), thread_([this] { Run(); }) {}

void StepLoop::Wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  called_.notify_one();
}

void StepLoop::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    called_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void StepLoop::Run() {
  absl::Time next = absl::InfinitePast();
  while (true) {
    {
      const absl::Duration longest = absl::Hours(1);  // keeps infinities out of the wait
      const absl::Duration wait = std::clamp(next - clock_.Now(), absl::ZeroDuration(), longest);
      std::unique_lock lock(mutex_);
      // Even a wait of no time gives the thread up: Linux lets its timer be late by 50 us.
      const bool called = wait == absl::ZeroDuration() || called_.wait_for(lock, absl::ToChronoNanoseconds(wait),
                                                                           [this] { return woken_ || stopping_; });
      if (stopping_) return;
      if (!called && wait == longest) continue;
      woken_ = false;
    }
    next = step_();
  }
}

}  // namespace baton
