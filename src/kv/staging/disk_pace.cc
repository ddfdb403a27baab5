#include "kv/staging/disk_pace.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

// The weight of the old mean after one more block is read.
constexpr double kKeep = 0.8;
// The same while the disk is slow. The mean is then older, so it has less weight.
constexpr double kKeepSlow = 0.5;
// The number of reads after which the mean is updated, even if further reads are running.
constexpr int64_t kMostReads = 16;
// Upper bound of the mean, in compute times. It lets the mean recover soon from a slow moment.
constexpr double kMostSlow = 8;
// A slow disk pays again when the mean, in compute times, falls below kPaysAgain. The distance to 1
// avoids a change of the decision at every read.
constexpr double kPaysAgain = 0.8;
// One of kProbeEvery calls of ShouldProbe returns true.
constexpr int64_t kProbeEvery = 8;

}  // namespace

void DiskPace::OnRead(absl::Duration took, int64_t under_way, absl::Time now) {
  busy_ += now - std::max(last_end_, now - took);
  last_end_ = now;
  ++reads_;
  if (under_way > 0 && reads_ < kMostReads) return;
  const double keep = !has_read_time_ ? 0 : slow_ ? kKeepSlow : std::pow(kKeep, static_cast<double>(reads_));
  read_time_ = read_time_ * keep + busy_ / static_cast<double>(reads_) * (1 - keep);
  has_read_time_ = true;
  busy_ = absl::ZeroDuration();
  reads_ = 0;
}

bool DiskPace::Pays(int64_t reads, int64_t under_way) {
  if (!has_read_time_ || compute_time_ <= absl::ZeroDuration()) return true;
  read_time_ = std::min(read_time_, compute_time_ * kMostSlow);
  slow_ = read_time_ > compute_time_ * (slow_ ? kPaysAgain : 1);
  return !slow_ && read_time_ * (under_way + reads) <= compute_time_ * reads;
}

bool DiskPace::ShouldProbe(int64_t under_way) {
  if (!slow_ || under_way > 0 || ++not_probed_ < kProbeEvery) return false;
  not_probed_ = 0;
  return true;
}

}  // namespace baton
