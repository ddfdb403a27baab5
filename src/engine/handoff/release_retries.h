// The releases that decode workers have not acknowledged yet.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/handoff/sender_actions.h"

namespace baton {

// Repeats each release until the decode worker answers, or until the decode worker has freed the
// blocks by itself. Not thread-safe.
class ReleaseRetries {
 public:
  // Appends actions to `actions`, which must outlive this object.
  explicit ReleaseRetries(std::vector<SenderAction>& actions) : actions_(actions) {}

  // Sends the release at once, and again after each `retry_every` while it is not delivered.
  // `lease` is that of the reservation.
  void Send(const WorkerAddress& to, const ReservationRef& reservation, absl::Duration lease,
            absl::Duration retry_every, absl::Time now);
  // Returns the time at which Tick repeats the release, or InfiniteFuture if it does not.
  absl::Time OnReply(const WorkerAddress& from, const ReservationRef& reservation, const absl::Status& status,
                     absl::Time now);
  // Forgets the releases to `peer`, because the process that had the reservations is gone.
  void Forget(const WorkerAddress& peer);
  void Tick(absl::Time now);
  absl::Time NextTick() const;

  bool empty() const { return releases_.empty(); }
  // Adds the peers from which an answer is due or will be.
  void AddPeers(absl::flat_hash_set<WorkerAddress>& peers) const;

 private:
  struct Pending {
    bool reply_pending = true;
    absl::Duration retry_every;
    absl::Time retry_at;
    absl::Time give_up_at;
  };

  std::vector<SenderAction>& actions_;
  std::map<std::pair<WorkerAddress, ReservationRef>, Pending> releases_;
};

}  // namespace baton
