// Rate limit for log lines that untrusted clients can cause.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "absl/time/time.h"
#include "base/clock.h"

namespace baton {

// Permits one log line per period. Thread-safe.
class LogLimit {
 public:
  explicit LogLimit(absl::Duration period = absl::Seconds(10)) : period_(period) {}

  // Returns the number of lines suppressed since the last permitted line. Returns nullopt if the
  // caller must suppress this line too.
  std::optional<int64_t> Pass(absl::Time now = SteadyClock().Now()) {
    const std::lock_guard lock(mutex_);
    if (now < next_) {
      ++kept_back_;
      return std::nullopt;
    }
    next_ = now + period_;
    const int64_t kept_back = kept_back_;
    kept_back_ = 0;
    return kept_back;
  }

 private:
  const absl::Duration period_;
  std::mutex mutex_;  // guards the members below
  absl::Time next_ = absl::InfinitePast();
  int64_t kept_back_ = 0;
};

}  // namespace baton
