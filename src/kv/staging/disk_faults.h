// How long a disk that fails is left alone.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton {

// One failure is a block's. Several one after the other, or no answer for long, are the disk's: it is left alone for a
// while, then it is probed, and used again once it has done something. A disk without space is only not written to for
// a while.
class DiskFaults {
 public:
  // `patience`: how long it may have work and end none of it.
  explicit DiskFaults(absl::Duration patience) : patience_(patience) {}

  void OnBegun(absl::Time now);
  // `more`: other work is under way.
  void OnEnded(const absl::Status& status, bool was_write, bool more, absl::Time now);
  void Tick(absl::Time now);
  absl::Time NextTick() const;

  // kProbed: one thing at a time, for which nobody waits.
  enum class Use { kUsed, kLeftAlone, kProbed };
  Use use() const { return use_; }
  bool MayWrite() const { return use_ != Use::kLeftAlone && !writes_wait_; }
  // Why it is not used, or was not written to when that was last tried. OK: neither.
  const absl::Status& status() const { return use_ == Use::kUsed ? full_ : fault_; }

 private:
  void LeaveAlone(absl::Status status, absl::Time now);

  const absl::Duration patience_;
  Use use_ = Use::kUsed;
  bool writes_wait_ = false;
  int failures_ = 0;                                // since something went well
  absl::Time since_ = absl::InfiniteFuture();       // it has had work and ended none
  absl::Time left_until_ = absl::InfiniteFuture();  // kLeftAlone
  absl::Time full_until_ = absl::InfiniteFuture();  // writes_wait_
  absl::Status fault_, full_;
};

}  // namespace baton
