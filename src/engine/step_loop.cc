#include "engine/step_loop.h"

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
      std::unique_lock lock(mutex_);
      // Does not wait if `next` has come, since on Linux even a wait of zero time may take 50 us.
      while (!woken_ && !stopping_ && clock_.Now() < next) clock_.Wait(called_, lock, next);
      if (stopping_) return;
      woken_ = false;
    }
    next = step_();
  }
}

}  // namespace baton
