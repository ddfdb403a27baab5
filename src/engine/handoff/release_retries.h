// Releases that a decode worker has not acknowledged yet.
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

// A release is sent until it is answered, or until the decode worker would have freed the blocks anyway. Not
// thread-safe.
class ReleaseRetries {
 public:
  // Actions are appended to `actions`, which must outlive it.
  explicit ReleaseRetries(std::vector<SenderAction>& actions) : actions_(actions) {}

  // Sends the release at once, and an undelivered one again after `retry_every`. `lease`: the reservation's.
  void Send(const WorkerAddress& to, const ReservationRef& reservation, absl::Duration lease,
            absl::Duration retry_every, absl::Time now);
  // Returns when the release is to be repeated; infinite future: it is not.
  absl::Time OnReply(const WorkerAddress& from, const ReservationRef& reservation, const absl::Status& status,
                     absl::Time now);
  // The process that had the reservations is gone.
  void Forget(const WorkerAddress& peer);
  void Tick(absl::Time now);
  absl::Time NextTick() const;

  bool empty() const { return releases_.empty(); }
  void AddPeers(absl::flat_hash_set<WorkerAddress>& peers) const;  // that an answer is due from, or will be

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
