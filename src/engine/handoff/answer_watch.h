// The answers that a peer owes to this worker.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "base/check.h"

namespace baton {

// Decides whether a peer is mute: messages wait for its answers, and none has come for `within`.
// Answers lie unread while this process stands still, so that time does not count. The time is
// checked in quarters. A check that comes more than a quarter late begins the count again. Not
// thread-safe.
class AnswerWatch {
 public:
  // An infinite `within` switches the watch off.
  explicit AnswerWatch(absl::Duration within) : quarter_(within / kChecks) {}

  // A message has been sent that the peer must answer.
  void Sent(absl::Time now) {
    if (waiting_++ == 0) Restart(now);
  }
  // A message has ended: it was answered, or it waits no longer. REQUIRES: it was Sent.
  void Ended(bool answered, absl::Time now) {
    BATON_CHECK(waiting_ > 0, "an answer to no message");
    if (--waiting_ == 0) {
      next_check_ = absl::InfiniteFuture();
    } else if (answered) {
      Restart(now);
    }
  }
  // Does the check that is due, if any. Returns true if the peer is mute.
  bool Check(absl::Time now) {
    if (now < next_check_) return false;
    if (now > next_check_ + quarter_) {
      Restart(now);
      return false;
    }
    next_check_ += quarter_;
    return ++checks_ >= kChecks;
  }
  absl::Time next_check() const { return next_check_; }
  absl::Duration within() const { return quarter_ * kChecks; }

 private:
  static constexpr int kChecks = 4;

  void Restart(absl::Time now) {
    checks_ = 0;
    next_check_ = now + quarter_;
  }

  absl::Duration quarter_;
  int64_t waiting_ = 0;
  int checks_ = 0;  // since the last answer
  absl::Time next_check_ = absl::InfiniteFuture();
};

}  // namespace baton
