// How many sessions may be active, found by trying, as TCP finds its window (RFC 5681), by two signs. Little need be
// known of how long sessions get, what they share, or where KV is kept. I/O-free, not thread-safe.
//
//   lost    memory holds the KV of too many: active sessions find theirs evicted, and prefill workers, busy with
//           computing it again, keep others waiting
//   tight   what active sessions have would not fit, if they shared nothing, and prefill workers have more to do than
//           they can. It shows before anything is lost, while there is little to compute again, and costs little where
//           it errs: more sessions would get no more done, only wait for longer. (TCP Vegas, Brakmo and Peterson 1995,
//           goes by delays likewise.)
//
// Prefill workers with host memory lose nothing before that is full as well, and it counts as memory where it is cheap
// to bring back what is there: while they copy they do not compute, and fewer sessions at a time would need no copies.
//
// There is no bound until either is first seen. Of a round of prefills then, 32 that tell of lost KV or 128 in all,
//
//   lost: more than 5 %, and more than one, and prefills waited for longer than their copies and they themselves took;
//   or tight for the first time
//           sets it to half of what is active, but not below what should fit
//   tight: prefills waited for more than eight times as long as that took. What host memory holds fits, too, unless
//   copies took more than a twentieth of what computing took
//           lowers it by an eighth
//   else    raises it by a 64th, if sessions wait
//
// After each change as many prefills as there are active sessions are left out: what was before it says nothing of it.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace baton {

class SessionWindow {
 public:
  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

  struct Prefill {                           // of an active session, for which its client waits
    bool tells = true;                       // the session had KV there
    bool lost = false;                       // more of it was computed again than was new
    absl::Duration queued, compute, copied;  // as in PrefillDone
  };
  struct Sessions {
    int64_t active = 0;
    int64_t fit = 0;          // roughly, in half of KV memory
    int64_t fit_in_host = 0;  // as many more, in half of host memory
    bool some_wait = false;
  };
  void Ran(const Prefill& prefill, const Sessions& sessions);

  int64_t size() const { return size_; }  // >= 1

 private:
  struct Round {
    int64_t prefills = 0;
    int64_t tell = 0, lost = 0;  // of these
    absl::Duration queued{}, compute{}, copied{};
    absl::Duration served() const { return compute + copied; }
  };
  bool HasLost() const;
  bool IsTight(int64_t now, const Sessions& sessions) const;
  void Set(int64_t size, const Sessions& sessions);

  int64_t size_ = kUnbounded;
  int64_t left_out_ = 0;  // prefills to come
  Round round_;
};

}  // namespace baton
