// The dispatcher: all of a router's work on requests, from arrival to end, except I/O. It owns the
// table of requests, and joins the machines that each have a part of a request:
//
//   RouterCore     chooses the workers
//   AgentGraph     passes outputs on to downstream requests
//   Values         has the outputs that clients write
//   Workload       chooses the queue order
//   SessionGate    admits sessions
//   ContextStore   keeps prompts that clients build up call by call
//   PrefillAhead   starts shadow prefills and prefill hints
//   Workflows      ends all requests of a workflow at a limit
//
// Events and the time come in, and actions go out in order. The server and the simulator drive it.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/agent_graph.h"
#include "agent/context_store.h"
#include "agent/values.h"
#include "router/client_request.h"
#include "router/prefill_ahead.h"
#include "router/request.h"
#include "router/request_lives.h"
#include "router/request_table.h"
#include "router/router_core.h"
#include "router/session_gate.h"
#include "router/workload.h"
#include "tenants/workflows.h"

namespace baton {

// Why a client's call ended before its request.
enum class CallEnd {
  kCancelled,  // the client cancelled, or is gone
  kDeadline,   // the client waits no longer
};
struct CancelJob {
  RequestId request_id;
};
struct WorkerCommand {
  WorkerAddress worker;  // its configured address
  std::variant<PrefillJob, PrefillAppend, DecodeJob, CancelJob, KeepRoom> what;
};
using WorkerReport = std::variant<WorkerLoad, PrefillStarted, PrefillDone, RequestFailed, TokenUpdate, RoomReport>;
struct RequestProgress {
  uint64_t number = 0;  // of the request's ticket
  // As the decode worker sent it, but request_id is the ScopedId.
  TokenUpdate update;
  bool first = false;  // no update before this one had tokens
  // If `first`, the time since the prompt was complete. Otherwise, the time since the previous
  // update.
  absl::Duration wait;
  const ServedModel* served = nullptr;
};
struct RequestEnded {
  RequestTicket ticket;
  RequestOutcome outcome;
};
// The end of a prefill hint that AddPrefillHint accepted.
struct PrefillHintEnded {
  absl::StatusCode code;
};
// The end of a value that Values::Begin accepted. `sink` may be null.
struct ValueEnded {
  absl::Status status;
  std::shared_ptr<ValueSink> sink;
};
using DispatchAction = std::variant<WorkerCommand, RequestProgress, RequestCharge, RequestEnded, PrefillHintEnded,
                                    ValueEnded, WorkerWatch::Change>;

class Dispatcher {
 public:
  struct Options {
    RouterLimits limits{};
    AgentLimits agents{};
    ValueLimits values{};
    // Unset: requests run first come, first served.
    std::optional<WorkloadOptions> shortest_first{};
    // Unset: any number of sessions is active.
    std::optional<SessionLimits> sessions{};
    // Random for each router. Part of the workers' names for requests, and the base of the seeds of
    // requests without one.
    uint64_t nonce = 0;
    bool shadow_prefill = true;
  };
  explicit Dispatcher(const Options& options);
  Dispatcher(const Dispatcher&) = delete;  // its parts refer to each other
  Dispatcher& operator=(const Dispatcher&) = delete;

  // --- clients -----------------------------------------------------------------------------------
  // Puts the tokens of the request's context, if any, before the request's own. Returns the errors
  // of baton::BeginContext, with the effect of Refused.
  absl::Status Begin(ClientRequest& request, absl::Time now);
  // Starts a request. It ends by exactly one RequestEnded action, unless Submit returns an error:
  // - ALREADY_EXISTS: a live request of the cache domain has the id.
  // - the errors of AgentGraph, RouterCore, SessionGate, SettleMaxTokens and ContextStore
  //
  // An error has no effect but that of Refused. REQUIRES: Begin was OK, and the request has an id.
  absl::StatusOr<RequestTicket> Submit(std::unique_ptr<Request> prepared, absl::Time now);
  // A request was refused. Prompts that refer to its id, if it has one, fail at once or when no
  // further submission comes (AgentGraph::Refused). The trace of its workflow has it.
  void Refused(const RefusedRequest& request, absl::Time now);
  // Lets a client change its values: `change` calls Begin, Append or End. Returns its result.
  absl::Status ChangeValues(absl::FunctionRef<absl::Status(Values& values)> change, absl::Time now);
  // Starts a prefill hint, as PrefillAhead::AddPrefillHint does. Returns NOT_FOUND if the call has
  // ended.
  absl::Status AddPrefillHint(const RequestTicket& call, ClientRequest prompt, absl::Time now);
  // Ends the request, whose call has ended. Cancel, Fail and Detach do nothing for a request that
  // has ended.
  void Cancel(const RequestTicket& ticket, absl::Time now, CallEnd why = CallEnd::kCancelled);
  // Ends the request with the error of another request of its call.
  void Fail(const RequestTicket& ticket, const absl::Status& status, absl::Time now);
  // Ends the live requests and values of a workflow with CANCELLED. Returns how many there were.
  // Requests that are being read are refused (Workflows::Cancel).
  int32_t CancelWorkflow(const WorkflowKey& workflow, absl::Time now);
  // Detaches the client, which reads no further output. The request is cancelled once no client's
  // request needs its output, even if it has `keep`.
  void Detach(const RequestTicket& ticket, absl::Time now);
  // Ends all live requests and values with UNAVAILABLE.
  void EndAll(absl::Time now);

  // --- workers -----------------------------------------------------------------------------------
  // As in RouterCore. Reports about requests that have ended have no effect.
  void WorkerAttached(const WorkerAddress& link, const WorkerInfo& info, absl::Time now);
  void WorkerLost(const WorkerAddress& link, absl::Time now);
  int64_t Drain(const WorkerAddress& link, bool drained, absl::Time now);
  void Reported(const WorkerAddress& link, WorkerReport report, absl::Time now);

  void Tick(absl::Time now);
  // Before this time Tick does nothing.
  absl::Time NextTick() const;

  std::vector<DispatchAction> TakeActions();

  // --- views -------------------------------------------------------------------------------------
  const RouterCore& core() const { return core_; }
  const AgentGraph& graph() const { return graph_; }
  const Values& values() const { return values_; }
  const OutputLengths& lengths() const { return lengths_; }
  const ContextStore& contexts() const { return contexts_; }
  // Null if there is no limit on sessions.
  const SessionGate* gate() const { return gate_ ? &*gate_ : nullptr; }
  RequestLives& lives() { return lives_; }
  void CheckInvariants() const;

 private:
  // Adds a new request to graph and core.
  absl::Status Enter(Request& request, absl::Time now);
  // Settles the properties of a request that depend on the complete prompt.
  absl::Status Complete(ClientRequest& request);
  // REQUIRES: the request has a route.
  absl::Status SubmitToCore(Request& request, absl::Time now);
  // Reports what a client's request is charged for by now.
  void NoteCharge(const Request& request);
  // Lets a request go on that has taken a slot after a wait.
  void GoOn(Request& request, absl::Time now);
  // Passes on the gate's admission of a request.
  void Admit(Request& request, absl::Time now);
  void NotePrefill(const Request& request, std::span<const BlockKey> keys, absl::Time now);
  // Returns the request's arrival offset, for the job that is sent now.
  absl::Duration ArrivalOffset(const Request& request, absl::Time now) const;
  // Cancels a hand-off at its decode worker, if the request ended while the hand-off was being
  // committed. No request would start its blocks.
  void Discard(const PrefillDone& done);
  // Resets the stages of prefill if the request waits to be placed again.
  void NoteWaiting(Request& request);
  void ForgetPlace(Request& request, absl::Time at);
  // Ends requests and values of workflows, each with `why` of it.
  void FailAll(const std::vector<Workflows::Part*>& parts, absl::FunctionRef<absl::Status(const Workflows::Part&)> why,
               absl::Time now);
  // Notes that the request's present decode worker begins, or goes on with its output.
  void NoteDecodeWorker(Request& request) const;

  void On(const WorkerAddress& link, WorkerLoad load, absl::Time now);
  void On(const WorkerAddress& link, const PrefillStarted& started, absl::Time now);
  void On(const WorkerAddress& link, PrefillDone done, absl::Time now);
  void On(const WorkerAddress& link, const RequestFailed& failed, absl::Time now);
  void On(const WorkerAddress& link, TokenUpdate update, absl::Time now);
  void On(const WorkerAddress& link, const RoomReport& report, absl::Time now);

  // Carries out the actions of core, graph and gate.
  void Act(absl::Time now);
  void Act(const RouterAction& action, absl::Time now);
  void Act(PromptIncrement& increment, absl::Time now);
  void Act(PromptRestarted& restarted, absl::Time now);
  void Act(PromptFailed& failed, absl::Time now);
  void Act(OutputUnneeded& unneeded, absl::Time now);
  void StartPrefill(const RouterAction& action, absl::Time now);
  void AppendPrompt(const RouterAction& action, absl::Time now);
  void StartDecode(const RouterAction& action, absl::Time now);
  void StartScoring(const RouterAction& action, absl::Time now);
  void SendKeepRoom(const RouterAction& action);
  void End(const RouterAction& action, absl::Time now);

  const uint64_t nonce_;
  RequestTable requests_;
  RouterCore core_;
  // Outputs of the live requests and values, and of those that ended recently.
  AgentGraph graph_;
  Workflows workflows_{Workflows::Limits()};
  Values values_;
  OutputLengths lengths_;  // learned from the same requests
  // Sets the order of the same requests. Unset: first come, first served.
  std::optional<Workload> workload_;
  ContextStore contexts_{ContextLimits()};
  std::optional<SessionGate> gate_;  // requests with a session
  PrefillAhead ahead_;
  RequestLives lives_{requests_, values_};
  // Commands that TakeActions has returned for each attached worker since it attached.
  absl::flat_hash_map<WorkerAddress, int64_t> commands_sent_;
  std::vector<DispatchAction> actions_;
};

inline SessionGate::Counts SessionsOf(const Dispatcher& dispatcher) {
  return dispatcher.gate() == nullptr ? SessionGate::Counts{} : dispatcher.gate()->counts();
}

}  // namespace baton
