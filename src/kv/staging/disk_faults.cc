#include "kv/staging/disk_faults.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr absl::Duration kFull = absl::Seconds(10);

}  // namespace

void DiskFaults::OnBegun(absl::Time now) { since_ = std::min(since_, now); }

void DiskFaults::OnEnded(const absl::Status& status, bool was_write, bool more, absl::Time now) {
  since_ = more ? now : absl::InfiniteFuture();
  if (status.ok()) {
    if (was_write && !writes_paused_) full_ = absl::OkStatus();
  } else if (was_write && absl::IsResourceExhausted(status)) {
    full_ = status;
    writes_paused_ = true;
    full_until_ = now + kFull;
  } else if (!absl::IsDataLoss(status) && !is_off()) {
    fault_ = status;
  }
}

void DiskFaults::Tick(absl::Time now) {
  if (full_until_ <= now) {
    writes_paused_ = false;
    full_until_ = absl::InfiniteFuture();
  }
  if (is_off() || now < since_ + patience_) return;
  fault_ =
      absl::DeadlineExceededError(absl::StrCat("the disk completed no transfer for ", absl::FormatDuration(patience_)));
}

absl::Time DiskFaults::NextTick() const {
  return std::min(full_until_, is_off() ? absl::InfiniteFuture() : since_ + patience_);
}

}  // namespace baton
