// Deadlines of gRPC calls. They lie on the monotonic clock. The source also replaces functions with
// which gRPC 1.51 and Abseil 20220623 wait by the wall clock. Otherwise a clock that is set back by
// an hour would delay timeouts, pings and reconnects by an hour.
#pragma once

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace baton {

// Returns the time at which `timeout` has passed. All of gRPC's functions with a deadline accept
// it. An infinite timeout gives a deadline that never passes.
gpr_timespec DeadlineAfter(absl::Duration timeout);
// Returns the time until `deadline`, which is negative after it. ServerContextBase::raw_deadline()
// has the deadline of a server's call.
absl::Duration TimeUntil(gpr_timespec deadline);

}  // namespace baton
