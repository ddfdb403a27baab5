#include "base/retry.h"

namespace baton {
namespace {

// The retry delay of a refusal that states none.
constexpr absl::Duration kUsualDelay = absl::Seconds(1);

}  // namespace

bool MayRetry(const absl::Status& status) { return absl::IsUnavailable(status) || absl::IsResourceExhausted(status); }

absl::Duration RetryDelayOf(const absl::Status& status, absl::Duration known) {
  if (!MayRetry(status)) return absl::ZeroDuration();
  return known > absl::ZeroDuration() ? known : kUsualDelay;
}

}  // namespace baton
