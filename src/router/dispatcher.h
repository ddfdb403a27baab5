// All that a router does with requests, from their arrival until they end, but I/O. Owns the table
// of requests and joins the machines that each keep a part of a request:
//
//   RouterCore     which worker serves it
//   AgentGraph     which requests wait for its output
//   Workload       which requests come before it
//   SessionGate    whether its session may run
//   ContextStore   which prompt, built call by call, it continues
//   PrefillAhead   what is prefilled beside it, for later
//
// Events and the time come in, actions go out, in order. The server and the simulator drive it. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/agent_graph.h"
#include "agent/context_store.h"
#include "router/client_request.h"
#include "router/prefill_ahead.h"
#include "router/request.h"
#include "router/request_table.h"
#include "router/router_core.h"
#include "router/session_gate.h"
#include "router/timeline.h"
#include "router/workload.h"

namespace baton {

struct CancelJob {
  RequestId request_id;
};
struct WorkerCommand {
  WorkerAddress worker;  // the link
  std::variant<PrefillJob, PrefillAppend, DecodeJob, CancelJob> what;
};
struct RequestProgress {
  uint64_t number = 0;  // of the request's ticket
  TokenUpdate update;   // request_id: ScopedId
  bool first = false;   // its first tokens, or none yet
  absl::Duration wait;  // since its prompt was complete, if they are the first, else since those before
  const ServedModel* served = nullptr;
};
struct RequestEnded {
  RequestTicket ticket;
  RequestOutcome outcome;
};
// What became of a follower that Follow took.
struct FollowerEnded {
  absl::StatusCode code;
};
using DispatchAction = std::variant<WorkerCommand, RequestProgress, RequestEnded, FollowerEnded>;

class Dispatcher {
 public:
  struct Options {
    RouterLimits limits{};
    AgentLimits agents{};
    std::optional<WorkloadOptions> shortest_first{};  // unset: first come first served
    std::optional<SessionLimits> sessions{};          // unset: any number is active
    uint64_t nonce = 0;                               // of this router, in what workers call its requests
    bool shadow_prefill = true;
  };
  explicit Dispatcher(const Options& options);
  Dispatcher(const Dispatcher&) = delete;  // its parts refer to each other
  Dispatcher& operator=(const Dispatcher&) = delete;

  // --- clients -----------------------------------------------------------------------------------
  // Puts the tokens of the context that it names, if any, before its own. Errors as of baton::BeginContext.
  absl::Status Begin(ClientRequest& request, absl::Time now);
  // REQUIRES: begun; it has an id. It ends by one RequestEnded, unless this fails: ALREADY_EXISTS, the id is live among
  // those of its cache salt; else as AgentGraph, RouterCore, SettleMaxTokens and ContextStore say. A request that is
  // refused changes nothing for others: those that wait for it, as it was announced, wait on.
  absl::StatusOr<RequestTicket> Submit(std::unique_ptr<Request> prepared, absl::Time now);
  // As PrefillAhead::Follow. NOT_FOUND: the call is over.
  absl::Status Follow(const RequestTicket& call, ClientRequest prompt, absl::Time now);
  // Nothing if it is over, as for all that follow.
  void Cancel(const RequestTicket& ticket, absl::Time now);
  // Its client takes no more of it. It is cancelled when the last request that waits for its output has ended.
  void LetGo(const RequestTicket& ticket, absl::Time now);
  // Ends everything that is live, with UNAVAILABLE.
  void EndAll(absl::Time now);

  // --- workers -----------------------------------------------------------------------------------
  // As in RouterCore. What workers say of requests that are over does nothing.
  void WorkerAttached(const WorkerAddress& link, const WorkerInfo& info, absl::Time now);
  void WorkerLost(const WorkerAddress& link, absl::Time now);
  void WorkerLoaded(const WorkerAddress& link, const WorkerLoad& load) { core_.WorkerLoaded(link, load); }
  void OnPrefillDone(const WorkerAddress& link, PrefillDone done, absl::Time now);
  void OnFailed(const WorkerAddress& link, const RequestFailed& failed, absl::Time now);
  void OnUpdate(const WorkerAddress& link, TokenUpdate update, absl::Time now);
  void OnRoom(const WorkerAddress& link, int64_t requests, absl::Time now);

  void Tick(absl::Time now);
  absl::Time NextTick() const;  // when Tick has something to do at the latest; InfiniteFuture: nothing

  std::vector<DispatchAction> TakeActions() { return std::exchange(actions_, {}); }

  // --- views -------------------------------------------------------------------------------------
  const RouterCore& core() const { return core_; }
  const AgentGraph& graph() const { return graph_; }
  const ContextStore& contexts() const { return contexts_; }
  SessionGate::Counts sessions() const { return gate_ ? gate_->counts() : SessionGate::Counts{}; }
  int64_t session_limit() const { return gate_ ? gate_->limit() : 0; }  // 0: none
  // The requests of a tenant's workflow, live or lately over.
  Timeline::Lives LivesOf(const std::string& workflow, const std::string& tenant, absl::Time now);
  // The workflows of a tenant, the latest first.
  std::vector<WorkflowView> WorkflowsOf(const std::string& tenant, size_t most, absl::Time now);
  std::vector<SessionGate::View> LatestSessions(size_t most) const;
  void CheckInvariants() const;

 private:
  // Puts a new request into graph and core.
  absl::Status Enter(Request& request, absl::Time now);
  // The prompt is complete: settles what depends on that.
  absl::Status Complete(ClientRequest& request);
  absl::Status SubmitToCore(Request& request, absl::Time now);  // REQUIRES: it has a route
  // Its session has its turn.
  void Admit(Request& request, absl::Time now);
  // Whether an admitted request waits for it, directly or through requests without a session.
  static bool IsNeeded(const Request& request);
  // An admitted request holds a place, so what it waits for must not wait for one.
  void PassUpstreams(const Request& request, absl::Time now);
  SessionGate::Capacity KvCapacity() const;  // of all prefill workers
  void NotePrefill(const Request& request, std::span<const BlockKey> keys, absl::Time now);
  // For the worker that is given the request now.
  absl::Duration Handicap(const Request& request, absl::Time now) const;
  const Request* FirstUpstream(const ClientRequest& request) const;  // that is live; null: none
  // The request ended while its hand-off was being committed: no request will start the blocks that
  // the decode worker holds.
  void Discard(const PrefillDone& done);
  // Whether a client's request waits for its output.
  static bool IsAwaited(const Request& request);
  // If it waits to be placed anew.
  void NoteWaiting(Request& request);

  // Carries out what core and graph decided.
  void Act(absl::Time now);
  void Act(const RouterAction& action, absl::Time now);
  void Act(PromptGrew& grew, absl::Time now);
  void Act(PromptRestarted& restarted, absl::Time now);
  void Act(PromptFailed& failed, absl::Time now);
  void StartPrefill(const RouterAction& action, absl::Time now);
  void AppendPrompt(const RouterAction& action, absl::Time now);
  void StartDecode(const RouterAction& action, absl::Time now);
  void End(const RouterAction& action, absl::Time now);

  RequestTable requests_;
  RouterCore core_;
  AgentGraph graph_;                  // of the same requests, and outputs of those lately over
  std::optional<Workload> workload_;  // of the same requests, where it has their order
  ContextStore contexts_{ContextLimits()};
  std::optional<SessionGate> gate_;  // of requests with a session
  PrefillAhead ahead_;
  // Live requests that go on for others only, by id.
  absl::btree_set<Request*, Request::ById> let_go_;
  Timeline timeline_{TimelineLimits{}};  // of those with a workflow that are over
  std::vector<DispatchAction> actions_;
};

}  // namespace baton
