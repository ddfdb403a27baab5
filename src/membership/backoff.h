// How long to wait before what failed is tried again.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

namespace baton {

// From 100 ms, doubled each time up to 2 s, and of that a part drawn between a half and the whole: processes that lost
// the same server do not all come back at once. Not thread-safe.
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
