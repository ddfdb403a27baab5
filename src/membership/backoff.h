// The delay before the retry of a failed operation.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

namespace baton {

// Exponential backoff with jitter. The upper bound begins at 100 ms and doubles with each call, up
// to 2 s. Each delay is drawn between half of the bound and the bound. The jitter keeps processes
// that lost the same server from reconnecting at the same time. Not thread-safe.
class Backoff {
 public:
  explicit Backoff(uint32_t seed) : random_(seed) {}
  std::chrono::milliseconds Next() {
    const auto most = next_;
    next_ = std::min(2 * next_, kMost);
    return std::chrono::milliseconds(
        std::uniform_int_distribution<std::chrono::milliseconds::rep>(most.count() / 2, most.count())(random_));
  }
  void Reset() { next_ = kFirst; }

 private:
  static constexpr std::chrono::milliseconds kFirst{100}, kMost{2000};
  std::mt19937 random_;
  std::chrono::milliseconds next_ = kFirst;
};

}  // namespace baton
