// The workers that have refused a request, and the meaning of failures that workers report.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace baton {

// A refusal by a worker leaves the worker out until a time, or until it reports room. A worker
// occurs at most once.
class Refusals {
 public:
  struct Refusal {
    WorkerAddress link;
    absl::Time until;  // InfiniteFuture: until the worker reports room
  };

  // Replaces an earlier refusal by the worker.
  void LeaveOut(const WorkerAddress& link, absl::Time until) {
    if (Refusal* known = Find(link)) {
      known->until = until;
    } else {
      refusals_.push_back({link, until});
    }
  }
  // Returns whether there was a refusal by the worker.
  bool Forget(const WorkerAddress& link) {
    return std::erase_if(refusals_, [&](const Refusal& refusal) { return refusal.link == link; }) > 0;
  }
  // Forgets refusals whose time has passed.
  void ForgetDue(absl::Time now) {
    std::erase_if(refusals_, [&](const Refusal& refusal) { return refusal.until <= now; });
  }
  // Leaves out a worker until a time, and another one no longer.
  void Replace(const WorkerAddress& forgotten, const WorkerAddress& link, absl::Time until) {
    Forget(forgotten);
    LeaveOut(link, until);
  }
  // Ends refusals that last until the worker reports room at a time instead. Reports of room reach
  // waiting requests only.
  void EndAwaitsAt(absl::Time until) {
    for (Refusal& refusal : refusals_) {
      if (refusal.until == absl::InfiniteFuture()) refusal.until = until;
    }
  }
  void Clear() { refusals_.clear(); }

  // Null: the worker is not left out.
  Refusal* Find(const WorkerAddress& link) {
    const auto found = std::ranges::find(refusals_, link, &Refusal::link);
    return found == refusals_.end() ? nullptr : &*found;
  }
  bool Has(const WorkerAddress& link) const { return std::ranges::count(refusals_, link, &Refusal::link) > 0; }
  // Returns whether any worker is left out until it reports room.
  bool AwaitsRoom() const { return std::ranges::count(refusals_, absl::InfiniteFuture(), &Refusal::until) > 0; }
  // Returns whether the worker is left out until it reports room.
  bool AwaitsRoom(const WorkerAddress& link) const {
    const auto found = std::ranges::find(refusals_, link, &Refusal::link);
    return found != refusals_.end() && found->until == absl::InfiniteFuture();
  }
  // Returns the earliest time. InfiniteFuture: there is none.
  absl::Time Next() const {
    absl::Time next = absl::InfiniteFuture();
    for (const Refusal& refusal : refusals_) next = std::min(next, refusal.until);
    return next;
  }

  std::vector<Refusal>& all() { return refusals_; }
  const std::vector<Refusal>& all() const { return refusals_; }

 private:
  std::vector<Refusal> refusals_;
};

struct Request;
class WorkerRegistry;

// A worker's report that it could not serve a request.
struct WorkerFailure {
  absl::Status status;
  absl::Duration retry_after{};
  // Set by a prefill worker if the decode worker is the reason. UNAVAILABLE: the prefill worker
  // cannot reach it. RESOURCE_EXHAUSTED: it is full, for retry_after, or until a report of room if
  // that is zero.
  bool no_room_to_decode = false;
  // The decode worker has restarted, so every prefill worker would fail in the same way.
  bool decode_restarted = false;
};

// How often a request's hand-off may fail at its start, since the last token.
inline constexpr int32_t kMostFailedStarts = 3;

struct FailureMeaning {
  absl::Status reason{};      // for the client
  WorkerAddress refuser{};    // the worker to leave out
  bool failed_start = false;  // a decode worker could not start the hand-off
  bool leaves = false;        // the refuser shuts down, so it counts as lost
  bool until_room = false;    // the refuser is full until it reports room
  bool unreachable = false;   // this prefill worker does not reach the decode worker
  bool again = false;         // the request may be placed again
};
// Returns the meaning of a failure that `link` has reported. REQUIRES: the request is placed there.
FailureMeaning MeaningOf(const WorkerFailure& failure, const WorkerAddress& link, const Request& request,
                         const WorkerRegistry& workers);

// Returns for how long a refusing worker is left out while `waiting` other requests wait.
absl::Duration RetryDelay(const WorkerFailure& failure, int64_t waiting);

}  // namespace baton
