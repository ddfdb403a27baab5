// The requests for which this router asks decode workers to keep room.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "router/request.h"
#include "router/router_action.h"
#include "router/waiting_queue.h"
#include "router/worker_registry.h"

namespace baton {

// A request that full decode workers have refused is overdue once it has waited for `wait`. Each
// decode worker keeps room for at most one overdue request of this router, and each request has
// room kept at one worker at most. WaitingQueue::LongestRefusedBy is the choice.
//
// Room is kept until the hand-off to the worker is done, and ends early if the request is placed at
// another worker, no longer waits, or ends. A request with kept room asks no other worker that has
// refused it, because the blocks that are free for it already would be lost.
//
// The worker finds the request by the name of its next hand-off. Each placement uses a name up, so
// a kKeepRoom action follows if the request waits again.
class RoomKeeper {
 public:
  // `actions` gets the kKeepRoom and kDropRoom actions. All arguments must outlive this.
  RoomKeeper(absl::Duration wait, const WorkerRegistry& workers, const WaitingQueue& waiting,
             std::vector<RouterAction>& actions)
      : wait_(wait), workers_(workers), waiting_(waiting), actions_(actions) {}

  // Records that the request waits for room, or waits for it again.
  void Waits(Request& request, absl::Time now);
  // Records that the request is being placed at this decode worker. It may be null.
  void Placed(Request& request, const AttachedWorker* decode, absl::Time now);
  // Ends the keeping for this request. Does nothing if no room is kept for it.
  void Drop(Request& request);
  // Ends the keeping at a worker. Does nothing if it keeps no room for this router.
  void DropAt(const WorkerAddress& link);
  // The same for all workers that may not keep room now (MayKeep).
  void DropUnasked();
  // Ends the keeping at a worker that is lost, and so gets no message.
  void WorkerLost(const WorkerAddress& link);

  // Chooses requests for decode workers that keep no room.
  void Tick(absl::Time now);
  // Before this time Tick does nothing. InfiniteFuture: no time is set.
  absl::Time NextTick() const { return waiting_.size() == 0 ? absl::InfiniteFuture() : next_; }

  // Number of requests for which room is kept, now and since the start.
  int64_t kept() const { return static_cast<int64_t>(kept_.size()); }
  int64_t kept_total() const { return kept_total_; }
  // `live`: all requests that have not ended.
  void CheckInvariants(const absl::flat_hash_set<Request*>& live) const;

 private:
  struct Kept {
    Request* request = nullptr;
    bool name_used = false;  // by a placement, since the last kKeepRoom action
  };

  // Returns whether a worker may keep room: it is a decode worker that requests may ask now, and is
  // not avoided.
  bool MayKeep(const AttachedWorker& worker) const;
  std::vector<const AttachedWorker*> FreeWorkers() const;
  void Send(Request& request, Kept& kept, absl::Time now);

  const absl::Duration wait_;
  const WorkerRegistry& workers_;
  const WaitingQueue& waiting_;
  std::vector<RouterAction>& actions_;
  absl::btree_map<WorkerAddress, Kept> kept_;  // by decode worker
  absl::Time next_ = absl::InfiniteFuture();
  int64_t kept_total_ = 0;
};

}  // namespace baton
