// The workers that have refused a request.
#pragma once

#include <algorithm>
#include <vector>

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
  void Clear() { refusals_.clear(); }

  // Null: the worker is not left out.
  Refusal* Find(const WorkerAddress& link) {
    const auto found = std::ranges::find(refusals_, link, &Refusal::link);
    return found == refusals_.end() ? nullptr : &*found;
  }
  bool Has(const WorkerAddress& link) const { return std::ranges::count(refusals_, link, &Refusal::link) > 0; }
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

}  // namespace baton
