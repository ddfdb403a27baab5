#include "base/clock.h"

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"

namespace baton {

void Clock::Wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, absl::Time until) const {
  // An infinite duration would overflow in wait_for.
  const absl::Duration longest = absl::Hours(1);
  const absl::Duration wait = std::min(until - Now(), longest);
  if (wait > absl::ZeroDuration()) changed.wait_for(lock, absl::ToChronoNanoseconds(wait));
}

absl::Time SteadyClock::Now() const {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

void SteadyClock::SleepUntil(absl::Time time) const { absl::SleepFor(time - Now()); }

void ManualClock::Wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, absl::Time until) const {
  if (Now() < until) changed.wait_for(lock, std::chrono::milliseconds(1));
}

}  // namespace baton
