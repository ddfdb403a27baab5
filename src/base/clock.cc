#include "base/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace baton {

absl::Time SteadyClock::Now() const {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

void SteadyClock::SleepUntil(absl::Time time) const { absl::SleepFor(time - Now()); }

}  // namespace baton
