// The life of a request in a router: the workers that serve it, and the times.
//
//   waiting ──► prefilling ──► starting ──► decoding ──► ended
//      ▲            │             │  RESOURCE_EXHAUSTED
//      └────────────┴─────────────┘
//
// - A request that wants log probabilities of its prompt goes from waiting to scoring, and then to
//   decoding. Only a decode worker gets it.
// - If a worker refuses a request with RESOURCE_EXHAUSTED, the core tries another worker at once.
//   If all workers have refused, the request waits and asks again, unless it is a low-priority job,
//   which ends. It ends with the last refusal once its waits add up to `capacity_wait`. Time in
//   which a prefill worker computes the prompt for a full decode worker is no wait.
// - A held request is not placed before Admit. It may end before.
// - A request takes a slot (RequestSlots) when its prompt is complete and it is not held. A prompt
//   that is complete before a slot is free is not closed until then.
// - A streaming prompt that all prefill workers have refused stays here, and is placed when it is
//   complete.
// - A request with Route::at_holder ends if the holder refuses it or is gone.
// - A request whose worker is silent or hung (WorkerWatch) moves to another worker. In kPrefilling,
//   its job at an avoided prefill worker goes on beside the new one, a hedge, and the first commit
//   wins.
// - An output that outgrows its decode worker goes on at a larger one, if such a one is attached.
// - Every accepted request ends exactly once, by one kEnd action. The core asks workers that may
//   still hold KV of the request to cancel it.
//
// docs/design/placement.md has the rules of waiting and their reasons.
//
// I/O-free: events and the time come in, and actions go out in order. Not thread-safe.
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
#include "router/hedges.h"
#include "router/placement.h"
#include "router/refusals.h"
#include "router/request.h"
#include "router/request_timers.h"
#include "router/room_keeper.h"
#include "router/router_action.h"
#include "router/tenant_order.h"
#include "router/waiting_queue.h"
#include "router/worker_choice.h"
#include "router/worker_registry.h"
#include "router/worker_state.h"
#include "router/worker_watch.h"
#include "tenants/request_slots.h"

namespace baton {

// A request that lost this many workers since its last token ends.
inline constexpr int32_t kMostLostWorkers = 3;
// A request leaves avoided workers at most this often before its next token. It ends when the third
// worker (kMostLostWorkers) hangs in a step with it.
inline constexpr int32_t kMostMoves = 3;

struct RouterLimits {
  // Upper bound on requests that run, or wait for workers, with complete prompts.
  int32_t live_requests = 4096;
  // Upper bound on requests that wait for outputs, for their session or for a slot. 0: four times
  // live_requests.
  int32_t waiting_prompts = 0;
  // Upper bound on requests that wait for a worker.
  int32_t waiting_requests = 1024;
  // How long a request waits for a worker to attach that could serve it.
  absl::Duration worker_wait = absl::Seconds(30);
  // The same if such a worker announced its shutdown before it left.
  absl::Duration restart_wait = absl::Seconds(30);
  // How long a request waits in all after workers refused it for lack of room. Time in which a
  // worker computes the prompt does not count. A deadline may end the wait earlier.
  absl::Duration capacity_wait = absl::Seconds(30);
  // How long a request waits before a decode worker that refused it keeps room for it.
  absl::Duration room_wait = absl::Seconds(2);
  // The retry_after of refused clients.
  absl::Duration retry_hint = absl::Seconds(1);
  PlacementOptions placement{};
  WatchOptions watch{};
};

// Maintains the Placement of each request. A request must outlive its kEnd action. Events of a
// request that has ended do nothing, unless stated otherwise.
class RouterCore {
 public:
  explicit RouterCore(const RouterLimits& limits);
  RouterCore(const RouterCore&) = delete;  // its parts refer to each other
  RouterCore& operator=(const RouterCore&) = delete;

  // --- workers -----------------------------------------------------------------------------------
  // As WorkerRegistry::Attach.
  void WorkerAttached(const WorkerAddress& link, const WorkerInfo& info, absl::Time now);
  // Removes a worker; does nothing if it is not attached. The core places its requests again, and
  // another decode worker resumes those that have output. A request ends with INTERNAL if
  // kMostLostWorkers workers that ran it were lost since its last token, because it may be the
  // cause. Streaming prompts and workers that were shutting down do not count.
  void WorkerLost(const WorkerAddress& link, absl::Time now);
  // An operator drains a worker, or ends that. A drained worker gets no requests. Its requests move
  // to other workers as those of an avoided worker do, except that a stream stays until another
  // worker has room. Returns how many requests still have a job at the worker.
  int64_t Drain(const WorkerAddress& link, bool drained, absl::Time now);
  // Records a report. It may change the health of workers, and thereby place requests elsewhere.
  void WorkerLoaded(const WorkerAddress& link, const WorkerLoad& load, absl::Time now);

  // --- requests ----------------------------------------------------------------------------------
  // Accepts a request. Returns RESOURCE_EXHAUSTED if no slot is free for it, or if there are too
  // many waiting requests, in all or of its tenant. A refused request gets no kEnd. REQUIRES: the
  // request is not live and has a route (Request::SetRoute).
  absl::Status Submit(Request& request, absl::Time now);
  // Admits a held request. It is placed once it has a slot.
  void Admit(Request& request, absl::Time now);
  void Fail(Request& request, const absl::Status& status) { End(request, status); }
  // Records an increment of a streaming prompt. The request ends with RESOURCE_EXHAUSTED if its
  // tenant's waiting prompts have too many bytes.
  void Grew(Request& request);
  // Records that a streaming prompt is complete. It is closed once the request has a slot.
  void Closed(Request& request, absl::Time now);
  // Sets the deadline if it is earlier than the present one.
  void EndBy(Request& request, absl::Time deadline);
  // Handles a committed hand-off of any of the request's jobs. Returns true if the hand-off is
  // valid. Then kStartDecode follows, or kEnd with OK for a prefill-only request. Otherwise cancels
  // the hand-off at the decode worker with this incarnation.
  bool PrefillDone(const WorkerAddress& link, Request& request, Incarnation decode_incarnation, absl::Time now);
  // Records that a prefill worker has these first blocks of a prompt that it has prefilled.
  void Remember(const WorkerAddress& link, std::span<const BlockKey> keys) {
    if (AttachedWorker* worker = registry_.Find(link)) worker->prefix_memory->Remember(keys);
  }
  using Failure = WorkerFailure;
  void Failed(const WorkerAddress& link, Request& request, const Failure& failure, absl::Time now);
  // A decode worker reports room for `requests` of the requests that it has refused. This number of
  // its waiting requests ask it again. `kept` asks before them, since the worker has kept room for
  // it. Null: there is no such request.
  void OnRoom(const WorkerAddress& link, int64_t requests, Request* kept, absl::Time now);
  // Returns whether the update may be passed on, and counts its tokens in that case. If it is the
  // last, kEnd with OK follows. If the output has outgrown the worker (WorkerChoice::Outgrows), the
  // last update is void, and a larger worker resumes the request.
  bool TokensArrived(const WorkerAddress& link, Request& request, const TokenUpdate& update, absl::Time now);
  // Ends all live requests with UNAVAILABLE, because the router shuts down.
  void EndAll();

  // --- time --------------------------------------------------------------------------------------
  // Applies deadlines, and the ends of waits. Lets waiting requests ask workers again. Finds silent
  // workers, and places their requests elsewhere.
  void Tick(absl::Time now);
  // Before this time Tick does nothing. InfiniteFuture: no time is set.
  absl::Time NextTick() const;
  std::vector<RouterAction> TakeActions() {
    for (const RequestSlots::Part* slot : slots_.TakeGranted()) {
      actions_.push_back({.kind = RouterAction::Kind::kHasSlot, .request = slot->request});
    }
    return std::exchange(actions_, {});
  }

  // --- views -------------------------------------------------------------------------------------
  const WorkerRegistry& registry() const { return registry_; }
  int32_t live_requests() const { return static_cast<int32_t>(live_.size()); }
  const RequestSlots& slots() const { return slots_; }
  const WaitingQueue& waiting() const { return waiting_; }
  const RoomKeeper& rooms() const { return rooms_; }
  void CheckInvariants() const;

 private:
  bool NoteHealth(absl::Time now);
  // Without requests no placement depends on the health of workers, so the router need not wake up.
  // Reports of other workers still update it.
  absl::Time NextWatch() const { return live_.empty() ? absl::InfiniteFuture() : watch_.NextTick(); }
  // Places the request, or ends it if no worker can ever hold its max_tokens. Returns false if it
  // did neither.
  bool TryPlace(Request& request, absl::Time now);
  // Makes the request wait for a worker, or for room on a worker.
  void Wait(Request& request, absl::Time now);
  bool NotePromptTokens(Request& request);
  void PlaceOrWait(Request& request, absl::Time now);
  void Place(Request& request, const WorkerChoice::Workers& workers, absl::Time now, bool hedge = false);
  bool AskAgain(Request& request, const WorkerAddress& link, absl::Time now);
  void ForgetRefusals(Request& request) {
    request.placement.refusals.Clear();
    request.placement.refused_at.reset();
    rooms_.Drop(request);
  }
  void AskElsewhere(const WorkerAddress& link, absl::Time now);
  void UseHeldRoom(absl::Time now);
  void DropFormer(Request& request);
  void MoveFromAvoided(absl::Time now);
  void Move(Request& request, absl::Time now);
  void LeaveWorkers(Request& request);
  void GiveUpHedge(Request& request, bool refused = false);
  void PlaceWaiting(absl::Time now);
  Request& FirstToAsk(Request& request, absl::Time now);
  void EndOverdue(absl::Time now);
  void PassOnRoom(const Placement& placement);
  void End(Request& request, const absl::Status& status, absl::Duration retry_after = absl::ZeroDuration());
  void Arm(Request& request);

  const RouterLimits limits_;
  WorkerRegistry registry_;
  WorkerWatch watch_;
  const WorkerChoice choice_;
  Assignments assignments_{registry_};
  RequestSlots slots_;
  TenantOrder tenants_;
  WaitingQueue waiting_;
  RequestTimers timers_;
  absl::flat_hash_set<Request*> live_;
  int64_t next_sequence_ = 0;
  // Decode workers with reported room that a request has left to the next one in the queue.
  absl::btree_set<WorkerAddress> room_left_;
  std::vector<RouterAction> actions_;
  RoomKeeper rooms_{limits_.room_wait, registry_, waiting_, actions_};
  Hedges hedges_{registry_, assignments_, actions_};
};

}  // namespace baton
