// The life of a request, from its arrival until it ends: which worker serves it, and when. I/O-free:
// events and the time come in, actions go out, in order. Not thread-safe.
//
//   waiting ──► prefilling ──► starting ──► decoding ──► ended
//      ▲            │             │  RESOURCE_EXHAUSTED
//      └────────────┴─────────────┘
//
// A worker that refuses a request with RESOURCE_EXHAUSTED is left out for that request, pinned or
// not: a full decode worker until it reports room (OnRoom) or attaches anew, another worker until
// its hint has passed. The core tries another worker at once. When all have refused, the request
// waits for the first report, or for the first hint to pass. Requests that wait for the same worker
// ask it again, whichever of their hints has passed: WaitingQueue has their order. A request that
// needs more room than a report has is refused again and stays first in its tenant's line.
//
// A request that is submitted as held stays so until it is admitted. It ends like any other, but
// nothing else is done.
//
// A streaming prompt that all prefill workers have refused grows at home and is placed when it is
// complete. It may wait for its upstream as long as it likes, and keeps nothing from requests that
// could run. A request that is of use at its holder only ends where the holder refuses it or is gone.
//
// Every accepted request ends exactly once, by one kEnd action. Workers that may still hold
// something of it are then asked to cancel it.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/assignments.h"
#include "router/placement.h"
#include "router/request.h"
#include "router/request_timers.h"
#include "router/tenant_shares.h"
#include "router/waiting_queue.h"
#include "router/worker_registry.h"
#include "router/worker_state.h"

namespace baton {

struct RouterLimits {
  int32_t live_requests = 4096;
  int32_t waiting_requests = 1024;
  absl::Duration worker_wait = absl::Seconds(2);     // for a worker that could serve it to attach
  absl::Duration restart_wait = absl::Seconds(30);   // the same, in place of one that drained before it left
  absl::Duration capacity_wait = absl::Seconds(30);  // for room on a full decode worker, if no deadline comes first
  absl::Duration retry_hint = absl::Seconds(1);      // for clients that are refused
  PlacementOptions placement{};
};

struct RouterAction {
  // kAppend: the prompt has grown; kClose: it is complete, and goes on like any other.
  enum class Kind { kStartPrefill, kAppend, kClose, kStartDecode, kCancel, kEnd };
  Kind kind = Kind::kEnd;
  Request* request = nullptr;
  WorkerAddress worker{};  // the link to use; empty for kEnd
  // kStartPrefill, kClose: where the KV goes (of an open one: probably); or empty.
  WorkerAddress decode_worker{};
  bool open = false;             // kStartPrefill: kAppend and kClose follow
  absl::Status status{};         // kEnd
  absl::Duration retry_after{};  // kEnd with RESOURCE_EXHAUSTED or UNAVAILABLE; zero: unknown
};

// Keeps Placement of each request. A request must outlive its kEnd action. Events of a request that
// has ended do nothing, unless it is said otherwise.
class RouterCore {
 public:
  explicit RouterCore(const RouterLimits& limits);
  RouterCore(const RouterCore&) = delete;  // its parts refer to each other
  RouterCore& operator=(const RouterCore&) = delete;

  // --- workers -----------------------------------------------------------------------------------
  // As WorkerRegistry::Attach.
  void WorkerAttached(const WorkerAddress& link, const WorkerInfo& info, absl::Time now);
  // Harmless if not attached. Its requests end, but those of which nothing was shown yet are placed
  // again: streaming prompts always, others once, not counting workers that were shutting down.
  void WorkerLost(const WorkerAddress& link, absl::Time now);
  void WorkerLoaded(const WorkerAddress& link, const WorkerLoad& load);

  // --- requests ----------------------------------------------------------------------------------
  // RESOURCE_EXHAUSTED: too many live or waiting requests, of all or of its tenant. Such a request
  // has no kEnd. REQUIRES: the request is not live and has a route (Request::SetRoute).
  absl::Status Submit(Request& request, absl::Time now);
  void Admit(Request& request, absl::Time now);  // it is held no longer
  void Cancel(Request& request);                 // ends it with CANCELLED
  void Fail(Request& request, const absl::Status& status) { End(request, status); }
  void Grew(Request& request);                    // a streaming prompt has more tokens
  void Closed(Request& request, absl::Time now);  // and these are all
  // It has an earlier deadline from now on.
  void EndBy(Request& request, absl::Time deadline);
  // True: the hand-off stands and kStartDecode follows (for prefill-only: kEnd, OK). False: the
  // decode worker of the incarnation is asked to cancel.
  bool PrefillDone(const WorkerAddress& link, Request& request, Incarnation decode_incarnation);
  // A prefill worker has these first blocks of a prompt that it has done.
  void Remember(const WorkerAddress& link, std::span<const BlockKey> keys);
  struct Failure {
    absl::Status status;
    absl::Duration retry_after{};
    // From a prefill worker. UNAVAILABLE: it cannot reach the decode worker. RESOURCE_EXHAUSTED: the
    // decode worker is full; without retry_after, until OnRoom.
    bool no_room_to_decode = false;
  };
  void Failed(const WorkerAddress& link, Request& request, const Failure& failure, absl::Time now);
  // A decode worker has room for so many requests that it has refused: so many that wait for it ask
  // again.
  void OnRoom(const WorkerAddress& link, int64_t requests, absl::Time now);
  // True: the tokens may be passed on. `finished`: they are the last, and kEnd with OK follows.
  bool TokensArrived(const WorkerAddress& link, Request& request, bool finished);
  // The router shuts down: everything live ends with UNAVAILABLE.
  void EndAll();

  // --- time --------------------------------------------------------------------------------------
  void Tick(absl::Time now);    // deadlines, retries, waits that were too long
  absl::Time NextTick() const;  // InfiniteFuture: Tick has nothing to do
  std::vector<RouterAction> TakeActions() { return std::exchange(actions_, {}); }

  // --- views -------------------------------------------------------------------------------------
  const WorkerRegistry& registry() const { return registry_; }
  int32_t live_requests() const { return static_cast<int32_t>(live_.size()); }
  int32_t waiting_requests() const { return waiting_.size(); }
  // Of the prompt of a request with a route, the tokens that the prefill worker with most of them
  // cached would still compute.
  int64_t FewestUncached(const Request& request) const;
  void CheckInvariants() const;

 private:
  using Candidates = WorkerRegistry::Candidates;

  bool TryPlace(Request& request, absl::Time now);
  void Wait(Request& request, absl::Time now);  // for a worker, or for room at one
  void PlaceOrWait(Request& request, absl::Time now);
  void Place(Request& request, const AttachedWorker& prefill, const AttachedWorker* decode);
  const AttachedWorker* DecodeFor(const Request& request, const AttachedWorker& prefill, Candidates decodes);
  void PlaceWaiting(absl::Time now);
  Request& FirstToAsk(Request& request, absl::Time now);
  void EndOverdue(absl::Time now);
  void PassOnRoom(const Placement& placement);
  // Whether the worker has reported room that no request has asked for, which one request now may.
  bool TakeUnclaimedRoom(const WorkerAddress& link);
  void End(Request& request, const absl::Status& status, absl::Duration retry_after = absl::ZeroDuration());
  void Arm(Request& request);

  const RouterLimits limits_;
  WorkerRegistry registry_;
  Assignments assignments_{registry_};
  TenantShares shares_;
  WaitingQueue waiting_;
  RequestTimers timers_;
  absl::flat_hash_set<Request*> live_;
  int64_t next_sequence_ = 0;
  absl::btree_set<WorkerAddress> room_left_;  // whose room a request has left to the next in line
  std::vector<RouterAction> actions_;
};

}  // namespace baton
