#include "rpc/grpc_deadline.h"

#include <cstdint>
#include <limits>

#include "absl/time/clock.h"

// Replaces gRPC's function of this name. gRPC 1.51's threads for callbacks pause with it for 0.1 s,
// until a wall-clock time. In gRPC's version, a clock that is set back by an hour during a pause
// makes the pause an hour long, and the process answers no call meanwhile.
extern "C" void gpr_sleep_until(gpr_timespec until) { absl::SleepFor(baton::TimeUntil(until)); }

namespace baton {

gpr_timespec DeadlineAfter(absl::Duration timeout) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN));
}

absl::Duration TimeUntil(gpr_timespec deadline) {
  const gpr_timespec left = gpr_convert_clock_type(deadline, GPR_TIMESPAN);
  // gRPC's infinite deadline
  if (left.tv_sec == std::numeric_limits<int64_t>::max()) return absl::InfiniteDuration();
  return absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

}  // namespace baton
