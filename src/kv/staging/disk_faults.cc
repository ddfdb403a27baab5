#include "kv/staging/disk_faults.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int kMostFailures = 3;
constexpr absl::Duration kLeftAlone = absl::Minutes(1);
constexpr absl::Duration kFull = absl::Seconds(10);

}  // namespace

void DiskFaults::OnBegun(absl::Time now) { since_ = std::min(since_, now); }

void DiskFaults::OnEnded(const absl::Status& status, bool was_write, bool more, absl::Time now) {
  since_ = more ? now : absl::InfiniteFuture();
  if (status.ok()) {
    failures_ = 0;
    if (use_ == Use::kProbed) use_ = Use::kUsed;
    if (was_write && !writes_wait_) full_ = absl::OkStatus();
  } else if (was_write && absl::IsResourceExhausted(status)) {
    full_ = status;
    writes_wait_ = true;
    full_until_ = now + kFull;
  } else if (!absl::IsDataLoss(status) && (++failures_ >= kMostFailures || use_ == Use::kProbed)) {
    LeaveAlone(status, now);
  }
}

void DiskFaults::LeaveAlone(absl::Status status, absl::Time now) {
  use_ = Use::kLeftAlone;
  left_until_ = now + kLeftAlone;
  fault_ = std::move(status);
  failures_ = 0;
}

void DiskFaults::Tick(absl::Time now) {
  if (writes_wait_ && full_until_ <= now) writes_wait_ = false;
  if (use_ == Use::kLeftAlone) {
    if (left_until_ > now) return;
    use_ = Use::kProbed;
    if (since_ != absl::InfiniteFuture()) since_ = now;
  } else if (since_ + patience_ <= now) {
    LeaveAlone(
        absl::DeadlineExceededError(absl::StrCat("the disk did not answer for ", absl::FormatDuration(patience_))),
        now);
  }
}

absl::Time DiskFaults::NextTick() const {
  const absl::Time full = writes_wait_ ? full_until_ : absl::InfiniteFuture();
  return std::min(full, use_ == Use::kLeftAlone ? left_until_ : since_ + patience_);
}

}  // namespace baton
