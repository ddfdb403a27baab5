// A bound on active sessions that adapts to the load of prefill workers, as TCP's window adapts to
// the network (RFC 5681).
//
// SessionWindow judges rounds of prefills. Two signs lower the bound:
// - lost: active sessions find their KV evicted, and prefill workers that compute it again keep
//   other requests waiting.
// - tight: the active sessions' KV would not fit in memory if the sessions shared nothing, and
//   prefill workers have far more work than they can do.
//
// A round without a sign raises the bound if sessions wait. docs/design/sessions.md has the rules
// and the reasons.
//
// I/O-free. Not thread-safe.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace baton {

class SessionWindow {
 public:
  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

  // A prefill of an active session's request, for which a client waits.
  struct Prefill {
    // True if the router has recorded KV of this session at this worker, so that a loss can be
    // seen.
    bool had_kv = true;
    // True if the worker computed more of this KV again than it computed new tokens.
    bool lost = false;
    absl::Duration queued, compute, copied;  // as in PrefillDone
  };
  // The active sessions, and whether others wait.
  struct Sessions {
    int64_t active = 0;
    // Estimate of the sessions that fit in half of KV memory.
    int64_t fit = 0;
    // Estimate of the additional sessions that fit in half of host memory.
    int64_t fit_in_host = 0;
    bool some_wait = false;
  };
  // Adds a prefill to the round. `sessions` is the state after the prefill.
  void AddPrefill(const Prefill& prefill, const Sessions& sessions);

  // The bound on active sessions. kUnbounded until the first sign, and at least 1.
  int64_t size() const { return size_; }

 private:
  struct Round {
    int64_t prefills = 0;
    int64_t had_kv = 0, lost = 0;  // those of `prefills` with `had_kv`, and of these with `lost`
    absl::Duration queued{}, compute{}, copied{};
    absl::Duration served() const { return compute + copied; }
  };
  bool HasLost() const;
  bool IsTight(int64_t active, const Sessions& sessions) const;
  void Set(int64_t size, const Sessions& sessions);

  int64_t size_ = kUnbounded;
  int64_t left_out_ = 0;  // upcoming prefills to ignore
  Round round_;
};

}  // namespace baton
