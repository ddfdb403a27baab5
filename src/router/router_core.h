// Who serves which request, from its arrival until it ends: registry of workers, pins, placement and the life of a
// request. I/O-free: events and the time come in, actions go out, in order. Not thread-safe.
//
//   waiting ──► prefilling ──► starting ──► decoding ──► ended
//      ▲            │             │  RESOURCE_EXHAUSTED
//      └────────────┴─────────────┘
//
// A worker that refuses a request with RESOURCE_EXHAUSTED is left out for that request until its hint has passed,
// pinned or not; another one is tried at once. When all have refused, the request waits for the first hint to pass.
// Those that wait for the same worker ask it again, whosever hint has passed: tenants take turns, and a tenant's go in
// order of priority and turn. A tenant has no more live and waiting requests than are left for others.
//
// A request that is submitted as held stays so until it is admitted: it ends like any other, but nothing else is done.
//
// A growing prompt that all prefill workers have refused grows at home and is placed when it is complete: it may wait
// for its upstream as long as it likes, and keeps nothing from those that could run. What is of use at its holder only
// ends where that refuses it or is gone.
//
// Every accepted request ends exactly once, by one kEnd action. Workers that may still hold something of it are then
// told to cancel it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/placement.h"
#include "router/worker_state.h"

namespace baton {

struct RouterLimits {
  int32_t live_requests = 4096;
  int32_t waiting_requests = 1024;
  absl::Duration worker_wait = absl::Seconds(2);     // for a worker that could serve it to attach
  absl::Duration restart_wait = absl::Seconds(30);   // the same, in place of one that drained before it left
  absl::Duration capacity_wait = absl::Seconds(30);  // for room on a full decode worker, if no deadline comes first
  absl::Duration retry_hint = absl::Seconds(1);      // told to clients that are refused
  PlacementOptions placement{};
};

struct RouterAction {
  // kAppend: the prompt has grown; kClose: it is complete, and goes on like any other.
  enum class Kind { kStartPrefill, kAppend, kClose, kStartDecode, kCancel, kEnd };
  Kind kind = Kind::kEnd;
  RequestId request{};
  WorkerAddress worker{};         // the link to use; empty for kEnd
  WorkerAddress decode_worker{};  // kStartPrefill, kClose: where the KV goes (of an open one: probably); or empty
  bool open = false;              // kStartPrefill: kAppend and kClose follow
  absl::Status status{};          // kEnd
  absl::Duration retry_after{};   // kEnd with RESOURCE_EXHAUSTED or UNAVAILABLE; zero: unknown
};

class RouterCore {
 public:
  explicit RouterCore(RouterLimits limits) : limits_(std::move(limits)) {}

  // --- workers -------------------------------------------------------------------------------------------------
  // FAILED_PRECONDITION: a decode worker of other weights than those that serve its model, or of another prefill
  // module; it may come when they have gone, or shut down. A client that names a model does not mean either of two.
  absl::Status MayAttach(const WorkerInfo& info) const;
  // `link` is the address as configured. A link attaches at most once before it is lost. REQUIRES: MayAttach.
  void WorkerAttached(const WorkerAddress& link, const WorkerInfo& info, absl::Time now);
  // Harmless if not attached. Its requests end, but those of which nothing was shown yet are placed again: growing
  // prompts always, others once, not counting workers that were shutting down.
  void WorkerLost(const WorkerAddress& link, absl::Time now);
  void WorkerLoaded(const WorkerAddress& link, const WorkerLoad& load);

  // --- requests ------------------------------------------------------------------------------------------------
  // ALREADY_EXISTS: the id is live; RESOURCE_EXHAUSTED: too many live or waiting requests, of all or of its
  // tenant. Such a request has no kEnd.
  absl::Status Submit(RouteRequest request, absl::Time now);
  // The request was held and is no more.
  void Admit(const RequestId& id, absl::Time now);
  // Ends it with CANCELLED. Harmless for an unknown request, as are all the events below.
  void Cancel(const RequestId& id);
  // Ends it with another error of ours.
  void Fail(const RequestId& id, const absl::Status& status) { End(id, status); }
  // An open prompt has this many tokens now.
  void Grew(const RequestId& id, int32_t prompt_tokens);
  // And these are all.
  void Closed(const RequestId& id, int32_t prompt_tokens, int32_t max_new_tokens, absl::Time now);
  // It has an earlier deadline from now on.
  void EndBy(const RequestId& id, absl::Time deadline);
  // True: the hand-off stands and kStartDecode follows (for prefill-only: kEnd, OK).
  bool PrefillDone(const WorkerAddress& link, const RequestId& id, Incarnation decode_incarnation);
  // A prefill worker has these first blocks of a prompt that it has done, submitted with it or not.
  void Remember(const WorkerAddress& link, std::span<const BlockKey> keys);
  struct Failure {
    absl::Status status;
    absl::Duration retry_after{};
    bool no_room_to_decode = false;  // a prefill worker says it of the decode worker, or cannot reach it
  };
  void Failed(const WorkerAddress& link, const RequestId& id, const Failure& failure, absl::Time now);
  // True: the tokens may be passed on. `finished`: they are the last, and kEnd with OK follows.
  bool TokensArrived(const WorkerAddress& link, const RequestId& id, bool finished);
  // The router shuts down: everything live ends with UNAVAILABLE.
  void EndAll();

  // --- time ----------------------------------------------------------------------------------------------------
  void Tick(absl::Time now);    // deadlines, retries, waits that were too long
  absl::Time NextTick() const;  // when Tick has something to do at the latest; InfiniteFuture: nothing

  std::vector<RouterAction> TakeActions() { return std::exchange(actions_, {}); }

  // --- views ---------------------------------------------------------------------------------------------------
  const absl::btree_map<WorkerAddress, AttachedWorker>& workers() const { return workers_; }
  int32_t live_requests() const { return static_cast<int32_t>(live_.size()); }
  int32_t waiting_requests() const { return static_cast<int32_t>(waiting_.size()); }
  // OK if a request for this model finds workers, full or not; else what is missing.
  absl::Status Readiness(const std::string& model, bool prefill_only) const;
  // Until when a request for it waits for workers that were restarted to come back; InfinitePast: for none.
  absl::Time AwaitedUntil(const std::string& model, bool prefill_only) const;
  // Attached decode workers' models, with the model of a prefill worker whose KV they go on from.
  struct Decoder {
    std::string model, module;
  };
  std::vector<Decoder> Decoders() const;
  // Of a prompt's tokens those that the prefill worker which has most of them cached would still have to compute.
  int64_t FewestUncached(const RouteRequest& request) const;
  // It is live, and waits for a worker, or for room at one.
  bool Waits(const RequestId& id) const;
  // Of its prompt, as they were submitted. Empty if it is not known.
  std::vector<BlockKey> KeysOf(const RequestId& id) const;
  void CheckInvariants() const;

 private:
  // kHeld: not to be placed yet, complete or not. kGrowing: its prompt is not complete; a prefill worker computes it as
  // it comes. kAtHome: it grows, and no prefill worker has room for such prompts.
  enum class State { kHeld, kWaiting, kAtHome, kGrowing, kPrefilling, kStarting, kDecoding };
  struct Refusal {
    WorkerAddress link;
    absl::Time until;
  };
  struct Live {
    RouteRequest request;
    int64_t sequence = 0;
    State state = State::kWaiting;
    WorkerAddress prefill, decode;         // links of the workers that may hold something of it; empty: none
    WorkerAddress expected_at;             // growing: where it will probably decode, or empty
    int64_t queued_tokens = 0;             // of its prompt, for `prefill` to compute
    absl::Time give_up;                    // waiting: when it ends with `reason`
    absl::Status reason;                   // waiting: why
    std::optional<absl::Time> refused_at;  // first RESOURCE_EXHAUSTED from a worker that does not shut down
    std::vector<Refusal> refusals;         // by workers that are left out for now, each at most once
    absl::Status last_refusal;
    bool placed_again = false;  // as a worker was lost that had not said that it would go
    absl::Time timer = absl::InfiniteFuture();
  };
  using WaitingKey = std::tuple<int32_t, absl::Time, int64_t, RequestId>;  // -priority, turn, sequence, id

  struct TenantUse {
    int32_t live = 0;  // requests that clients wait for; never 0
    int64_t turn = 0;  // the last one that it had
  };

  static WaitingKey KeyOf(const Live& live);
  AttachedWorker* FindWorker(const WorkerAddress& link);
  using Candidates = std::vector<const AttachedWorker*>;
  Candidates DecodeCandidates(const std::string& model) const;
  Candidates PrefillCandidates(const RouteRequest& request, const Candidates& decodes) const;

  static void LeaveOut(Live& live, const WorkerAddress& link, absl::Time until);
  bool TryPlace(Live& live, absl::Time now);
  void Wait(Live& live, absl::Time now);  // for a worker, or for room at one
  void PlaceOrWait(Live& live, absl::Time now);
  void Place(Live& live, const AttachedWorker& prefill, const AttachedWorker* decode);
  const AttachedWorker* DecodeFor(const Live& live, const AttachedWorker& prefill, Candidates decodes);
  void GoTo(Live& live, const AttachedWorker& decode);
  void Expect(Live& live, const AttachedWorker* decode);
  void SetPromptTokens(Live& live, int32_t tokens);
  void PlaceWaiting(absl::Time now);
  Live& FirstToAsk(Live& live, absl::Time now);
  bool IsDraining(const WorkerAddress& link) const;  // attached, and shuts down
  absl::Status CheckShare(const RouteRequest& request) const;
  bool MayWait(const RouteRequest& request) const;
  void CountLive(const RouteRequest& request, int32_t change);
  int64_t LastTurn(const std::string& tenant) const;
  void NoteTurn(const std::string& tenant);
  std::vector<RequestId> WaitingInTurn() const;
  Live* FirstWaitingFor(const WorkerAddress& link);
  void EndOverdue(absl::Time now);
  void LeavePrefill(Live& live);  // its worker is done with it
  void LeaveDecode(Live& live);
  void End(const RequestId& id, const absl::Status& status, absl::Duration retry_after = absl::ZeroDuration());
  void Arm(Live& live);

  RouterLimits limits_;
  struct Restarting {
    WorkerInfo info;
    absl::Time until;
  };
  absl::btree_map<WorkerAddress, Restarting> restarting_;   // drained and gone, and may be awaited
  absl::btree_map<WorkerAddress, AttachedWorker> workers_;  // attached ones, by link; ordered, so runs repeat
  absl::flat_hash_map<RequestId, Live> live_;
  std::set<WaitingKey> waiting_;
  absl::flat_hash_map<std::string, TenantUse> tenants_;  // of those with keys
  int64_t turns_ = 0;
  std::set<std::pair<absl::Time, RequestId>> timers_;  // one for each live request that has one
  int64_t next_sequence_ = 0;
  std::vector<RouterAction> actions_;
};

}  // namespace baton
