// Whether reading KV from disk takes less time than computing it again, by what the latest reads took.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace baton {

// A mean, which one slow moment can raise above what computing takes. As nothing is read then that could lower it, one
// block is read now and then to see.
class DiskPace {
 public:
  // What computing a block's tokens takes; zero: not known, and reading pays.
  void SetComputeTime(absl::Duration time) { compute_time_ = time; }
  // A block was read. `took`: on the disk, beside others perhaps; `under_way`: that are being read still.
  void OnRead(absl::Duration took, int64_t under_way, absl::Time now);

  // Whether so many blocks are sooner read than computed, after those under way.
  bool Pays(int64_t reads, int64_t under_way);
  // After Pays has said no: whether a block is to be read all the same, for which nobody waits.
  bool ShouldProbe(int64_t under_way);
  // As Pays found when it was last asked: even a disk with nothing else to do is too slow.
  bool slow() const { return slow_; }

 private:
  absl::Duration compute_time_, read_time_;  // of a block; read_time_ counts once known_
  bool known_ = false;
  bool slow_ = false;
  int64_t not_probed_ = 0;
  // Reads that do not count in the mean yet, and how long the disk was at them: those side by side count once.
  int64_t reads_ = 0;
  absl::Duration busy_;
  absl::Time last_end_ = absl::InfinitePast();
};

}  // namespace baton
