// An estimate of whether reading KV from disk takes less time than computing it again. It uses the
// duration of recent reads.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace baton {

// The estimate is a moving mean of the read time per block. One slow moment can raise the mean
// above the compute time. Reads then stop, so no new sample could lower the mean. A single block (a
// probe) is therefore read from time to time.
class DiskPace {
 public:
  // Sets the time to compute the tokens of one block. Zero means unknown. Pays then returns true.
  void SetComputeTime(absl::Duration time) { compute_time_ = time; }
  // Records that one block was read in time `took`, possibly in parallel with others. `under_way`
  // is the number of blocks whose reads are still running.
  void OnRead(absl::Duration took, int64_t under_way, absl::Time now);

  // Returns true if reading `reads` blocks after the `under_way` blocks is expected to take no
  // longer than computing these `reads` blocks. After the disk was slow, a block's mean read time
  // must first fall to 0.8 of its compute time. True while either time is unknown.
  bool Pays(int64_t reads, int64_t under_way);
  // Returns true if the caller should read one block as a probe. Call it after Pays has returned
  // false. No request should wait for this read.
  bool ShouldProbe(int64_t under_way);
  // True if, at the last call of Pays, even an idle disk was too slow.
  bool slow() const { return slow_; }

 private:
  absl::Duration compute_time_, read_time_;  // per block; read_time_ is valid if has_read_time_
  bool has_read_time_ = false;
  bool slow_ = false;
  int64_t not_probed_ = 0;  // calls of ShouldProbe since the last probe
  // The number of reads that are not in the mean yet, and the time in which the disk was busy with
  // them. Time in which several reads overlap counts once.
  int64_t reads_ = 0;
  absl::Duration busy_;
  absl::Time last_end_ = absl::InfinitePast();
};

}  // namespace baton
