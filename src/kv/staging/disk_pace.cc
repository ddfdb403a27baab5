#include "kv/staging/disk_pace.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

constexpr double kKeep = 0.8;       // of the mean, when one more block was read
constexpr double kKeepSlow = 0.5;   // the mean is old then
constexpr int64_t kMostReads = 16;  // that wait to be counted
constexpr double kMostSlow = 8;     // in terms of computing: a moment's slowness is to be forgotten soon
constexpr double kPaysAgain = 0.8;  // in terms of computing, so that it does not change its mind at every read
constexpr int64_t kProbeEvery = 8;

}  // namespace

void DiskPace::OnRead(absl::Duration took, int64_t under_way, absl::Time now) {
  busy_ += now - std::max(last_end_, now - took);
  last_end_ = now;
  ++reads_;
  if (under_way > 0 && reads_ < kMostReads) return;
  const double keep = !known_ ? 0 : slow_ ? kKeepSlow : std::pow(kKeep, static_cast<double>(reads_));
  read_time_ = read_time_ * keep + busy_ / static_cast<double>(reads_) * (1 - keep);
  known_ = true;
  busy_ = absl::ZeroDuration();
  reads_ = 0;
}

bool DiskPace::Pays(int64_t reads, int64_t under_way) {
  if (!known_ || compute_time_ <= absl::ZeroDuration()) return true;
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
