// The rules by which errors turn the disk for staged KV off, or pause writes to it.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton {

// A state machine over the results of transfers:
// - After an I/O error, or after `patience` without a result, the disk is off until the process
//   restarts.
// - After a write without space (RESOURCE_EXHAUSTED), writes pause for 10 s. Reads continue.
// - Wrong bytes (DATA_LOSS) have no effect on the disk. Only their block is lost.
class DiskFaults {
 public:
  // `patience` is the longest time in which the disk may have work without ending any of it.
  explicit DiskFaults(absl::Duration patience) : patience_(patience) {}

  // Records that transfers begin.
  void OnBegun(absl::Time now);
  // Records the end of a transfer. `more` is true if other transfers are still running.
  void OnEnded(const absl::Status& status, bool was_write, bool more, absl::Time now);
  void Tick(absl::Time now);
  absl::Time NextTick() const;

  bool is_off() const { return !fault_.ok(); }
  bool MayWrite() const { return !is_off() && !writes_paused_; }
  // Returns the error that turned the disk off. If the disk is on, returns the error of the last
  // write without space, or OK if a later write succeeded.
  const absl::Status& status() const { return is_off() ? fault_ : full_; }

 private:
  const absl::Duration patience_;
  bool writes_paused_ = false;
  // Since this time the disk has had work and has not ended any.
  absl::Time since_ = absl::InfiniteFuture();
  absl::Time full_until_ = absl::InfiniteFuture();  // the end of writes_paused_
  absl::Status fault_, full_;
};

}  // namespace baton
