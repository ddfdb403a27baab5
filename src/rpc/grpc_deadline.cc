#include "rpc/grpc_deadline.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <limits>

#include "absl/base/config.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/clock.h"
#include "grpc/support/sync.h"

// Later versions of Abseil wait for a duration by the monotonic clock.
#if ABSL_LTS_RELEASE_VERSION < 20230802
#define BATON_WAITS_FOR_ABSEIL
#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/futex.h"
#include "absl/synchronization/internal/per_thread_sem.h"
#include "absl/synchronization/internal/waiter.h"
#endif

// Replaces gRPC's function of this name. gRPC 1.51's threads for callbacks pause with it for 0.1 s,
// until a wall-clock time. In gRPC's version, a clock that is set back by an hour during a pause
// makes the pause an hour long, and the process answers no call meanwhile.
extern "C" void gpr_sleep_until(gpr_timespec until) { absl::SleepFor(baton::TimeUntil(until)); }

// Replaces gRPC's function of this name, which waits until a wall-clock time. gRPC's timers wait
// with it, for example for pings and for the next attempt to connect.
extern "C" int gpr_cv_wait(gpr_cv* changed, gpr_mu* mutex, gpr_timespec until) {
  static_assert(sizeof(gpr_cv) == sizeof(absl::CondVar) && sizeof(gpr_mu) == sizeof(absl::Mutex));
  auto* const held = reinterpret_cast<absl::Mutex*>(mutex);
  return reinterpret_cast<absl::CondVar*>(changed)->WaitWithTimeout(held, baton::TimeUntil(until)) ? 1 : 0;
}

#ifdef BATON_WAITS_FOR_ABSEIL

namespace baton {
namespace {

namespace sync = absl::synchronization_internal;

// Decrements `posts` when it is positive. Returns false if it is still 0 at `deadline`, a time of
// the monotonic clock.
bool TakePost(std::atomic<int32_t>& posts, timespec deadline) {
  while (true) {
    int32_t count = posts.load(std::memory_order_relaxed);
    while (count > 0) {
      if (posts.compare_exchange_weak(count, count - 1, std::memory_order_acquire)) return true;
    }
    const int error =
        sync::Futex::WaitBitsetAbsoluteTimeout(&posts, 0, static_cast<int32_t>(FUTEX_BITSET_MATCH_ANY), &deadline);
    if (error == -ETIMEDOUT) return false;
    BATON_CHECK(error == 0 || error == -EINTR || error == -EWOULDBLOCK, "the kernel refused to wait");
  }
}

}  // namespace
}  // namespace baton

// Replaces a weak function of Abseil, which waits until a wall-clock time. All waits for a mutex or
// a condition end here. The caller computed `timeout` as absl::Now() and a duration. Only
// absl::Now() gives the duration back, because it may be 2 s behind when the clock is set.
extern "C" bool ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait)(baton::sync::KernelTimeout timeout) {
  static_assert(ABSL_WAITER_MODE == ABSL_WAITER_MODE_FUTEX && sizeof(baton::sync::Waiter) == sizeof(int32_t));
  auto* const waiter = baton::sync::Waiter::GetWaiter(baton::sync::GetOrCreateCurrentThreadIdentity());
  if (!timeout.has_timeout()) return waiter->Wait(timeout);
  const absl::Duration left = absl::TimeFromTimespec(timeout.MakeAbsTimespec()) - absl::Now();
  const absl::Time deadline = baton::SteadyClock().Now() + std::max(left, absl::ZeroDuration());
  return baton::TakePost(*reinterpret_cast<std::atomic<int32_t>*>(waiter), absl::ToTimespec(deadline));
}

#endif

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
