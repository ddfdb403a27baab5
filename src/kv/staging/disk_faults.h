// Decides from its errors whether the disk for staged KV is used further.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton {

// An I/O error, or no answer for long, turns the disk off until the process is restarted. A disk without space is read,
// and not written to for 10 s. Wrong bytes (DATA_LOSS) cost their block alone.
class DiskFaults {
 public:
  // `patience`: how long the disk may have work without ending any of it.
  explicit DiskFaults(absl::Duration patience) : patience_(patience) {}

  void OnBegun(absl::Time now);
  // `more`: other work is under way.
  void OnEnded(const absl::Status& status, bool was_write, bool more, absl::Time now);
  void Tick(absl::Time now);
  absl::Time NextTick() const;

  bool is_off() const { return !fault_.ok(); }
  bool MayWrite() const { return !is_off() && !writes_wait_; }
  // Why the disk is off, or else why the last write found no space. OK: neither.
  const absl::Status& status() const { return is_off() ? fault_ : full_; }

 private:
  const absl::Duration patience_;
  bool writes_wait_ = false;
  absl::Time since_ = absl::InfiniteFuture();       // the disk has had work and has ended none
  absl::Time full_until_ = absl::InfiniteFuture();  // writes_wait_
  absl::Status fault_, full_;
};

}  // namespace baton
