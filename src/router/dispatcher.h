// All that a router does with requests, from their arrival until they end, but I/O: joins who serves a request
// (RouterCore), who waits for whose output (AgentGraph), what comes first (Workload), which sessions may run
// (SessionGate) and prompts that are built up call by call (ContextStore). Events and the time come in, actions go out,
// in order. The server and the simulator drive it. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/agent_graph.h"
#include "agent/context_store.h"
#include "router/client_request.h"
#include "router/request_record.h"
#include "router/router_core.h"
#include "router/session_gate.h"
#include "router/timeline.h"
#include "router/workload.h"

namespace baton {

// Tells a request from others that had its id before.
struct RequestTicket {
  RequestId id;  // ScopedId
  uint64_t number = 0;
};

// What takes time in proportion to a request and needs nothing but it, so that it is done before a lock is taken.
struct PreparedRequest {
  ClientRequest request;
  std::optional<RouteRequest> route;  // of a prompt that is complete
  std::vector<RequestId> upstreams;   // of a request with a workflow
};
PreparedRequest Prepare(ClientRequest request);

struct CancelJob {
  RequestId request_id;
};
struct WorkerCommand {
  WorkerAddress worker;  // the link
  std::variant<PrefillJob, PrefillAppend, DecodeJob, CancelJob> what;
};
struct RequestProgress {
  RequestTicket ticket;
  TokenUpdate update;
  bool first = false;   // its first tokens, or none yet
  absl::Duration wait;  // since its prompt was complete, if they are the first, else since those before
  const ServedModel* served = nullptr;
};
struct RequestEnded {
  RequestTicket ticket;
  RequestOutcome outcome;
  RequestParties parties;
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
  explicit Dispatcher(Options options);

  // --- clients -------------------------------------------------------------------------------------------------
  // Puts the tokens of the context that it names, if any, before its own. Errors as of baton::BeginContext.
  absl::Status Begin(ClientRequest& request, absl::Time now);
  // REQUIRES: begun; it has an id. It ends by one RequestEnded, unless this fails: ALREADY_EXISTS, the id is live among
  // those of its cache salt; else as AgentGraph, RouterCore, SettleMaxTokens and ContextStore say. A request that is
  // refused changes nothing for others: those that wait for it, as it was announced, wait on.
  absl::StatusOr<RequestTicket> Submit(PreparedRequest prepared, absl::Time now);
  // Prefills a prompt that will be asked after this call (follower.h). Refused, with nothing changed: NOT_FOUND, the
  // call is over; RESOURCE_EXHAUSTED, there is no room to spare, the call itself waits, or the tenant has as many
  // followers as it may; else as RouterCore::Readiness and AgentGraph say.
  absl::Status Follow(const RequestTicket& call, ClientRequest prompt, absl::Time now);
  // Nothing if it is over, as for all that follow.
  void Cancel(const RequestTicket& ticket, absl::Time now);
  // Its client takes no more of it. It is cancelled when the last request that waits for its output has ended.
  void LetGo(const RequestTicket& ticket, absl::Time now);
  // Ends everything that is live, with UNAVAILABLE.
  void EndAll(absl::Time now);

  // --- workers -------------------------------------------------------------------------------------------------
  // As in RouterCore. What workers say of requests that are over does nothing.
  void WorkerAttached(const WorkerAddress& link, const WorkerInfo& info, absl::Time now);
  void WorkerLost(const WorkerAddress& link, absl::Time now);
  void WorkerLoaded(const WorkerAddress& link, const WorkerLoad& load) { core_.WorkerLoaded(link, load); }
  void OnPrefillDone(const WorkerAddress& link, PrefillDone done, absl::Time now);
  void OnFailed(const WorkerAddress& link, const RequestFailed& failed, absl::Time now);
  void OnUpdate(const WorkerAddress& link, TokenUpdate update, absl::Time now);

  void Tick(absl::Time now);
  absl::Time NextTick() const;  // when Tick has something to do at the latest; InfiniteFuture: nothing

  std::vector<DispatchAction> TakeActions() { return std::exchange(actions_, {}); }

  // --- views ---------------------------------------------------------------------------------------------------
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
  // Puts a new request, whose record is there, into graph and core. No route: its prompt is not complete.
  absl::Status Enter(const RequestId& id, std::optional<RouteRequest> route, absl::Time now);
  // The prompt is, and settles what depends on it.
  absl::Status Complete(ClientRequest& request);
  absl::Status SubmitToCore(RouteRequest route, absl::Time now);
  // Its session has its turn.
  void Admit(const RequestId& id, absl::Time now);
  // Whether a request that its session's turn admitted waits for it, directly or through some that need none.
  bool IsNeeded(const RequestId& id) const;
  // Such a request holds a place, so what it waits for must not wait for one.
  void PassUpstreams(const RequestId& id, absl::Time now);
  SessionGate::Capacity KvCapacity() const;  // of all prefill workers
  // What became of the KV of a request's session.
  void TellGate(const RequestRecord& record, std::span<const BlockKey> keys, absl::Time now);
  // For the worker that is given the request now.
  absl::Duration Handicap(const RequestId& id, absl::Time now) const;
  // The live request that a worker means; null if it is over.
  RequestRecord* Find(const RequestId& worker_id);

  // The request ended while its hand-off was being committed: the decode worker holds blocks that nobody will start.
  void Discard(const PrefillDone& done);

  absl::Status MayFollow(const RequestTicket& call, const ClientRequest& prompt) const;

  // Whether a client's request waits for its output.
  bool IsAwaited(const RequestId& id) const;

  void NoteWaiting(const RequestId& id);

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
  // What the request has generated goes to its shadow, which begins with the first block if there is room; `all`: there
  // is no more.
  void Shadow(RequestRecord& record, std::span<const TokenId> tokens, bool all, absl::Time now);
  void StartShadow(RequestRecord& record, absl::Time now);
  void EndShadowsOf(const RequestRecord& prefilled);
  void ForgetShadow(const RequestRecord& shadow);

  const uint64_t nonce_;
  const bool shadow_prefill_;
  const int32_t most_with_shadows_;  // live requests: shadows leave the other half of the room to clients
  RouterCore core_;
  AgentGraph graph_;                  // of the same requests, and those lately over
  std::optional<Workload> workload_;  // of the same requests, where these are scheduled by it
  ContextStore contexts_{ContextLimits()};
  std::optional<SessionGate> gate_;                                      // of those with a session
  absl::node_hash_map<RequestId, RequestRecord> records_;                // of live requests
  absl::flat_hash_map<RequestId, RequestId> called_;                     // these, by what workers call them
  absl::flat_hash_map<SessionKey, absl::btree_set<RequestId>> shadows_;  // these, by session
  absl::flat_hash_map<std::string, int32_t> followers_;                  // these, by tenant; never 0
  absl::flat_hash_set<RequestId> let_go_;                                // of these, those that go on for others only
  Timeline timeline_{TimelineLimits{}};                                  // of those with a workflow that are over
  uint64_t submitted_ = 0, attempts_ = 0;
  std::vector<DispatchAction> actions_;
};

}  // namespace baton
