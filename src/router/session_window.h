// How many sessions may be active, found by trying, as TCP finds its window, and by how much it is reduced as in DCTCP
// (RFC 8257): memory holds the KV of too many when active sessions find theirs evicted, and prefill workers, busy with
// computing it again, keep others waiting. Nothing need be known of how long sessions get, what they share, or where KV
// is kept. I/O-free, not thread-safe.
//
// There is no bound until that is first seen. Of a round of prefills then
//
//   more than 5 % have lost their KV, and they waited for longer than they were computed
//                 sets it to what is active, less the share that lost it
//   else          raises it by a 64th, if sessions wait
//
// A round has 32 prefills, or as many as sessions are active. After each change as many as are active are left out:
// what was evicted before it says nothing of it.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace baton {

class SessionWindow {
 public:
  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

  struct Prefill {                       // of an active session
    int64_t computed = 0;                // tokens
    int64_t again = 0;                   // of these, tokens whose KV had been there
    absl::Duration queued{}, compute{};  // as in PrefillDone; nobody waits for a shadow: zero
  };
  void Ran(const Prefill& prefill, int64_t active, bool sessions_wait);

  int64_t size() const { return size_; }  // >= 1

 private:
  struct Round {
    int64_t prefills = 0;  // negative: so many more are left out
    int64_t lost = 0;      // of these
    absl::Duration queued{}, compute{};
  };
  bool IsCongested() const;
  void Set(int64_t size, int64_t active);

  int64_t size_ = kUnbounded;
  Round round_;
};

}  // namespace baton
