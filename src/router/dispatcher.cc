#include "router/dispatcher.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"
#include "model/sampler.h"
#include "model/thinking.h"
#include "router/internal_request.h"
#include "router/request_context.h"
#include "router/session_needs.h"
#include "router/wait_state.h"
#include "text/detokenizer.h"

namespace baton {

Dispatcher::Dispatcher(const Options& options)
    : nonce_(options.nonce),
      requests_(options.nonce),
      core_(options.limits),
      graph_(options.agents,
             [this](const RequestId& id) {
               if (AgentNode* value = values_.Find(id)) return value;
               Request* request = requests_.Find(id);
               return request == nullptr ? nullptr : &request->node;
             }),
      values_(options.values, graph_, workflows_),
      // Clients keep at least half of the request slots.
      ahead_({.shadows = options.shadow_prefill, .most_live = options.limits.live_requests / 2}, requests_, core_,
             graph_) {
  if (options.shortest_first) workload_.emplace(*options.shortest_first);
  if (options.sessions) gate_.emplace(*options.sessions);
}

// --- clients -------------------------------------------------------------------------------------

absl::Status Dispatcher::Begin(ClientRequest& request, absl::Time now) {
  if (request.context.id.empty()) return absl::OkStatus();
  absl::Status begun = BeginContext(contexts_, request, now);
  if (!begun.ok()) Refused(AsRefused(request, begun), now);
  return begun;
}

absl::StatusOr<RequestTicket> Dispatcher::Submit(std::unique_ptr<Request> prepared, absl::Time now) {
  const RequestTicket ticket{prepared->id, requests_.DrawNumber()};
  if (requests_.Find(ticket.id) != nullptr) {
    EndContext(contexts_, prepared->asked, "", now);
    const absl::Status in_use =
        absl::AlreadyExistsError(absl::StrCat("request_id: '", prepared->asked.id, "' is in use by a live request"));
    Refused(AsRefused(prepared->asked, in_use), now);
    return in_use;
  }
  // The table has the request before the first action needs it.
  Request& request = requests_.Add(std::move(prepared));
  request.number = ticket.number;
  request.stages.arrived = now;
  // Drawn here, so that another decode worker can go on with the output.
  SamplingParams& sampling = request.asked.spec.sampling;
  if (!sampling.seed && !request.asked.prefill_only) sampling.seed = ChoiceSeed(nonce_, ticket.number);
  const bool is_whole = request.asked.prompt.segments.empty();
  if (is_whole) request.stages.complete = now;
  if (absl::Status status = Enter(request, now); !status.ok()) {
    EndContext(contexts_, request.asked, "", now);
    graph_.Undo(request.node);
    if (workload_) workload_->Ended(request, now);
    if (gate_) gate_->Ended(request, now);
    const RefusedRequest refused = AsRefused(request.asked, status);
    requests_.Remove(request);
    Refused(refused, now);
    return status;
  }
  if (!request.asked.workflow.empty()) {
    workflows_.Arrived(request.flow, WorkflowOf(request.asked), TenantOf(request.asked), request.asked.workflow_limits,
                       now);
  }
  if (!is_whole || !request.asked.context.id.empty()) NoteCharge(request);
  Act(now);
  return ticket;
}

void Dispatcher::Refused(const RefusedRequest& request, absl::Time now) {
  lives_.KeepRefused(request, now);
  if (!request.id.empty() && !request.has_drawn_id) {
    const RequestId id = ScopedId(request.cache_domain, request.id);
    graph_.Refused(id, request.agent, request.status, request.retry_after, now);
  }
  Act(now);
}

absl::Status Dispatcher::ChangeValues(absl::FunctionRef<absl::Status(Values&)> change, absl::Time now) {
  absl::Status status = change(values_);
  Act(now);
  return status;
}

absl::Status Dispatcher::Enter(Request& request, absl::Time now) {
  ClientRequest& asked = request.asked;
  if (!asked.workflow.empty()) {
    RETURN_IF_ERROR(workflows_.Check(WorkflowOf(asked), asked.workflow_limits, asked.received, now));
  }
  asked.spec.expected_tokens = ExpectedTokens(asked, lengths_);
  if (asked.prompt.segments.empty()) {
    RETURN_IF_ERROR(graph_.Add(request.node, *asked.served->tokenizer));
    return SubmitToCore(request, now);
  }
  ASSIGN_OR_RETURN(PromptIncrement known, graph_.Submit(request.node, asked.prompt, now));
  asked.spec.tokens = std::move(known.tokens);
  if (known.complete) {
    request.stages.complete = now;
    RETURN_IF_ERROR(Complete(asked));
  }
  request.SetRoute(ToRoute(asked, request.FixedKeys()));
  return SubmitToCore(request, now);
}

absl::Status Dispatcher::Complete(ClientRequest& request) {
  request.prompt.segments.clear();
  if (!request.prefill_only) RETURN_IF_ERROR(SettleMaxTokens(request));
  request.spec.expected_tokens = ExpectedTokens(request, lengths_);
  return CompleteContext(contexts_, request);
}

absl::Status Dispatcher::SubmitToCore(Request& request, absl::Time now) {
  const bool gated = gate_ && !request.asked.session.empty();
  if (gated) RETURN_IF_ERROR(gate_->Arrived(request, SessionOf(request.asked), IsNeeded(request), now));
  request.placement.route.held = request.session.state == SessionGate::State::kWaiting;
  if (workload_) {
    const Workload::Lengths lengths = LengthsOf(request.asked, FewestUncached(core_.registry(), request));
    workload_->Arrived(request, lengths, FirstUpstream(requests_, request.asked), now);
    request.placement.route.queue_order = now + workload_->ArrivalOffset(request, now);
  }
  if (gate_ && !gated && IsNeeded(request)) AdmitUpstreams(*gate_, request, now);
  return core_.Submit(request, now);
}

void Dispatcher::Admit(Request& request, absl::Time now) {
  request.stages.admitted = now;
  if (request.placement.route.held) {
    core_.Admit(request, now);
    NoteCharge(request);
  }
  AdmitUpstreams(*gate_, request, now);
}

void Dispatcher::NoteCharge(const Request& request) {
  if (!request.is_internal()) actions_.emplace_back(request.charge());
}

void Dispatcher::GoOn(Request& request, absl::Time now) {
  NoteCharge(request);
  request.placement.route.streaming ? core_.Closed(request, now) : core_.Admit(request, now);
  NoteWaiting(request);
}

absl::Duration Dispatcher::ArrivalOffset(const Request& request, absl::Time now) const {
  return workload_ ? workload_->ArrivalOffset(request, now) : absl::ZeroDuration();
}

absl::Status Dispatcher::AddPrefillHint(const RequestTicket& call, ClientRequest prompt, absl::Time now) {
  const Request* request = requests_.Find(call);
  if (request == nullptr) return absl::NotFoundError("the call has ended");
  RETURN_IF_ERROR(ahead_.AddPrefillHint(*request, std::move(prompt), now));
  Act(now);
  return absl::OkStatus();
}

void Dispatcher::Cancel(const RequestTicket& ticket, absl::Time now, CallEnd why) {
  const Request* request = requests_.Find(ticket);
  if (request == nullptr) return;
  Fail(ticket, why == CallEnd::kDeadline ? DeadlinePassed(*request) : absl::CancelledError("cancelled by the client"),
       now);
}

void Dispatcher::Fail(const RequestTicket& ticket, const absl::Status& status, absl::Time now) {
  Request* request = requests_.Find(ticket);
  if (request == nullptr) return;
  core_.Fail(*request, status);
  Act(now);
}

int32_t Dispatcher::CancelWorkflow(const WorkflowKey& workflow, absl::Time now) {
  const std::vector<Workflows::Part*> parts = workflows_.Cancel(workflow, now);
  FailAll(
      parts, [](const Workflows::Part&) { return absl::CancelledError("its workflow was cancelled"); }, now);
  Act(now);
  return static_cast<int32_t>(parts.size());
}

// Finds all statuses first, because the end of one request changes what others wait for. Act ends
// the requests before it carries out what the graph reports about their prompts, so none fails
// because of another.
void Dispatcher::FailAll(const std::vector<Workflows::Part*>& parts,
                         absl::FunctionRef<absl::Status(const Workflows::Part&)> why, absl::Time now) {
  std::vector<absl::Status> statuses;
  for (const Workflows::Part* part : parts) statuses.push_back(why(*part));
  for (size_t i = 0; i < parts.size(); ++i) {
    const AgentNode& node = *parts[i]->node;
    node.request != nullptr ? core_.Fail(*node.request, statuses[i])
                            : values_.Fail(RequestId(*node.id), statuses[i], now);
  }
}

void Dispatcher::Detach(const RequestTicket& ticket, absl::Time now) {
  Request* request = requests_.Find(ticket);
  if (request == nullptr) return;
  if (!AgentGraph::IsNeeded(request->node)) return Cancel(ticket, now);
  request->node.keep = false;
}

void Dispatcher::EndAll(absl::Time now) {
  core_.EndAll();
  values_.EndAll(absl::UnavailableError("the router shuts down"), now);
  Act(now);
}

// --- workers -------------------------------------------------------------------------------------

void Dispatcher::WorkerAttached(const WorkerAddress& link, const WorkerInfo& info, absl::Time now) {
  commands_sent_[link] = 0;
  core_.WorkerAttached(link, info, now);
  if (gate_) gate_->SetCapacity(KvCapacity(core_.registry()));
  Act(now);
}

void Dispatcher::WorkerLost(const WorkerAddress& link, absl::Time now) {
  // By id, since some of these requests may end while the actions are carried out.
  std::vector<RequestId> ids_of_worker;
  const auto& workers = core_.registry().workers();
  if (const auto lost = workers.find(link); lost != workers.end()) {
    for (const Request* request : lost->second.requests) ids_of_worker.push_back(request->id);
  }
  core_.WorkerLost(link, now);
  commands_sent_.erase(link);
  contexts_.WorkerLost(link);
  if (gate_) {
    gate_->WorkerLost(link);
    gate_->SetCapacity(KvCapacity(core_.registry()));
  }
  Act(now);
  for (const RequestId& id : ids_of_worker) {
    if (Request* request = requests_.Find(id)) NoteWaiting(*request);
  }
}

int64_t Dispatcher::Drain(const WorkerAddress& link, bool drained, absl::Time now) {
  const int64_t remaining = core_.Drain(link, drained, now);
  Act(now);
  return remaining;
}

void Dispatcher::Reported(const WorkerAddress& link, WorkerReport report, absl::Time now) {
  std::visit([&](auto& concrete) { On(link, std::move(concrete), now); }, report);
}

void Dispatcher::On(const WorkerAddress& link, WorkerLoad load, absl::Time now) {
  const auto sent = commands_sent_.find(link);
  if (sent == commands_sent_.end()) return;
  load.commands_sent = sent->second;
  core_.WorkerLoaded(link, load, now);
  Act(now);
}

void Dispatcher::NoteWaiting(Request& request) {
  if (!request.placement.waits()) return;
  ForgetPlace(request, absl::InfiniteFuture());
}

// Forgets the last prefill of a request that is placed at `at`. The stages of a resumed request
// stay those of its first place, so all later time counts as decode.
void Dispatcher::ForgetPlace(Request& request, absl::Time at) {
  if (request.output.empty()) {
    request.stages.Place(at);
  } else if (!request.first_done) {
    request.first_done = request.done;
  }
  request.done.reset();
}

void Dispatcher::On(const WorkerAddress& link, const PrefillStarted& started, absl::Time now) {
  Request* request = requests_.FindByWorkerName(started.request_id);
  if (request == nullptr || request->placed_at != link || request->placement.waits()) return;
  request->placement.in_step = true;
  if (request->output.empty()) request->stages.Started(now);
}

void Dispatcher::On(const WorkerAddress& link, PrefillDone done, absl::Time now) {
  Request* found = requests_.FindByWorkerName(done.request_id);
  if (found == nullptr) return Discard(done);
  Request& request = *found;
  const bool resumes = !request.output.empty();
  if (core_.PrefillDone(link, request, done.decode_incarnation, now)) {
    if (workload_ && !resumes) workload_->Prefilled(request);
    if (!resumes) request.stages.Prefilled(done, now);
    request.prefilled_by = link;
    request.done = std::move(done);
    NotePrefill(request, request.placement.route.keys, now);
  } else {
    NoteWaiting(request);
  }
  Act(now);
}

void Dispatcher::NotePrefill(const Request& request, std::span<const BlockKey> keys, absl::Time now) {
  // A prefill hint need not be a turn of the session. A resumed request is no new turn.
  if (gate_ && !request.asked.session.empty() && !request.prefill_hint && request.output.empty()) {
    gate_->Prefilled(SessionOf(request.asked), PrefillOf(request, keys), now);
  }
  std::vector<BlockKey> all_keys;
  if (request.is_internal()) keys = all_keys = request.CurrentKeys();
  core_.Remember(request.prefilled_by, keys.first(request.BlocksAt(keys.size())));
  ahead_.Prefilled(request);
}

void Dispatcher::Discard(const PrefillDone& done) {
  for (const auto& [link, worker] : core_.registry().workers()) {
    if (worker.info.role != WorkerRole::kDecode || worker.info.incarnation != done.decode_incarnation) continue;
    actions_.push_back(WorkerCommand{link, CancelJob{done.request_id}});
  }
}

void Dispatcher::On(const WorkerAddress& link, const RequestFailed& failed, absl::Time now) {
  Request* request = requests_.FindByWorkerName(failed.request_id);
  if (request == nullptr) return;
  if (request->prefill_hint) {
    // Another worker might have room, but a prefill hint is not worth another attempt.
    core_.Fail(*request, failed.status);
  } else {
    core_.Failed(link, *request, {failed.status, failed.retry_after, failed.no_room_to_decode}, now);
  }
  NoteWaiting(*request);
  Act(now);
}

void Dispatcher::On(const WorkerAddress& link, const RoomReport& report, absl::Time now) {
  core_.OnRoom(link, report.requests, requests_.FindByWorkerName(report.kept), now);
  Act(now);
}

void Dispatcher::On(const WorkerAddress& link, TokenUpdate update, absl::Time now) {
  Request* found = requests_.FindByWorkerName(update.request_id);
  if (found == nullptr) return;
  Request& request = *found;
  // Writers of answers rely on it.
  if (const absl::Status complete = request.CheckLogprobs(update); !complete.ok()) {
    const std::string what = absl::StrCat("decode worker ", link, " sent ", complete.message());
    // The decode worker goes on with the request unless it is cancelled there.
    actions_.push_back(WorkerCommand{link, CancelJob{update.request_id}});
    return On(link, RequestFailed{update.request_id, absl::InternalError(what), absl::ZeroDuration(), false}, now);
  }
  if (update.tokens.empty() && update.text.empty() && !update.finish) {  // the first step began
    if (request.placement.decode != link) return;
    request.placement.in_step = true;
    request.stages.Updated(update, now);
    return;
  }
  update.request_id = request.id;
  const auto tokens = static_cast<int32_t>(update.tokens.size());
  const bool first = request.completion_tokens == 0;
  if (!core_.TokensArrived(link, request, update, now)) {
    NoteWaiting(request);
    return Act(now);
  }
  const absl::Duration wait = now - (first ? request.stages.complete : request.last_update);
  request.stages.Updated(update, now);
  request.last_update = now;
  request.resumed += std::exchange(request.resuming, false);
  request.output.insert(request.output.end(), update.tokens.begin(), update.tokens.end());
  request.finish = update.finish;
  if (first) {
    const auto before = UnfinishedEnd(*request.asked.served->tokenizer, request.asked.spec.tokens);
    update.before.assign(before.begin(), before.end());
    graph_.BeginAfter(request.node, before, ThinkingAfter(*request.asked.served, request.asked.spec.tokens));
  }
  graph_.Made(request.node, update.tokens, update.text);
  ahead_.Generated(request, update.tokens, now);
  if (workload_) workload_->Made(request, tokens);
  actions_.push_back(RequestProgress{request.number, std::move(update), first, wait, request.asked.served});
  if (Workflows::Generated(request.flow, tokens)) {
    FailAll(Workflows::Siblings(request.flow), Workflows::NoTokenLeft, now);
  }
  // Carries out the request's end if this update was the last.
  Act(now);
}

// --- time ----------------------------------------------------------------------------------------

void Dispatcher::Tick(absl::Time now) {
  core_.Tick(now);
  FailAll(workflows_.TakeOverdue(now), WorkflowOverdue, now);
  graph_.Tick(now);
  values_.Tick(now);
  if (workload_) workload_->Tick(now);
  contexts_.Tick(now);
  if (gate_) gate_->Tick(now);
  Act(now);
}

absl::Time Dispatcher::NextTick() const {
  const absl::Time workload = workload_ ? workload_->NextTick() : absl::InfiniteFuture();
  const absl::Time gate = gate_ ? gate_->NextTick() : absl::InfiniteFuture();
  return std::min({core_.NextTick(), graph_.NextTick(), values_.NextTick(), workload, gate, contexts_.NextTick(),
                   workflows_.NextDeadline()});
}

// --- actions of core, graph and gate -------------------------------------------------------------

void Dispatcher::Act(absl::Time now) {
  for (EndedValue& value : values_.TakeEnded()) {
    lives_.Keep(value);
    actions_.push_back(ValueEnded{std::move(value.status), std::move(value.sink)});
  }
  while (true) {
    const std::vector<RouterAction> core_actions = core_.TakeActions();
    for (const RouterAction& action : core_actions) Act(action, now);
    // Taken after the core's actions, because the end of a request completes prompts.
    std::vector<AgentAction> agent_actions = graph_.TakeActions();
    for (AgentAction& action : agent_actions) {
      std::visit([&](auto& concrete) { Act(concrete, now); }, action);
    }
    const std::vector<Request*> admitted = gate_ ? gate_->TakeAdmitted() : std::vector<Request*>();
    for (Request* request : admitted) Admit(*request, now);
    if (core_actions.empty() && agent_actions.empty() && admitted.empty()) return;
  }
}

std::vector<DispatchAction> Dispatcher::TakeActions() {
  for (const DispatchAction& action : actions_) {
    const auto* command = std::get_if<WorkerCommand>(&action);
    const auto sent = command == nullptr ? commands_sent_.end() : commands_sent_.find(command->worker);
    if (sent != commands_sent_.end()) ++sent->second;
  }
  return std::exchange(actions_, {});
}

void Dispatcher::Act(const RouterAction& action, absl::Time now) {
  switch (action.kind) {
    case RouterAction::Kind::kStartPrefill:
      return StartPrefill(action, now);
    case RouterAction::Kind::kAppend:
    case RouterAction::Kind::kClose:
      return AppendPrompt(action, now);
    case RouterAction::Kind::kHasSlot:
      return GoOn(*action.request, now);
    case RouterAction::Kind::kStartDecode:
      return StartDecode(action, now);
    case RouterAction::Kind::kStartScoring:
      return StartScoring(action, now);
    case RouterAction::Kind::kCancel:
      actions_.push_back(WorkerCommand{action.worker, CancelJob{action.request->worker_id}});
      return;
    case RouterAction::Kind::kKeepRoom:
      return SendKeepRoom(action);
    case RouterAction::Kind::kDropRoom:
      actions_.push_back(WorkerCommand{action.worker, KeepRoom{}});
      return;
    case RouterAction::Kind::kDropFormer:
      for (const WorkerAddress& link : {action.worker, action.decode_worker}) {
        if (!link.empty()) actions_.push_back(WorkerCommand{link, CancelJob{action.request->former_id}});
      }
      return requests_.ForgetFormer(*action.request);
    case RouterAction::Kind::kKeepFormer:
      requests_.KeepFormer(*action.request);
      action.request->placed_at = action.worker;
      return;
    case RouterAction::Kind::kEnd:
      return End(action, now);
    case RouterAction::Kind::kHealth:
      actions_.emplace_back(action.health);
  }
}

// The graph has no actions for ended requests.
void Dispatcher::Act(PromptIncrement& increment, absl::Time now) {
  Request& request = *increment.node->request;
  ClientRequest& asked = request.asked;
  asked.spec.tokens.Append(increment.tokens);
  if (!increment.complete) {
    NoteCharge(request);
    return core_.Grew(request);
  }
  request.stages.complete = now;
  if (absl::Status status = Complete(asked); !status.ok()) return core_.Fail(request, status);
  core_.Closed(request, now);
  NoteCharge(request);
  NoteWaiting(request);
  if (request.prefill_hint) core_.EndBy(request, now + kShadowWait);
}

void Dispatcher::Act(PromptRestarted& restarted, absl::Time) {
  Request& request = *restarted.node->request;
  request.asked.spec.tokens = {};
  request.restart |= request.sent > 0;
  request.sent = 0;
}

void Dispatcher::Act(PromptFailed& failed, absl::Time) { core_.Fail(*failed.node->request, failed.status); }

void Dispatcher::Act(OutputUnneeded& unneeded, absl::Time) {
  Request* request = unneeded.node->request;
  if (request == nullptr) return;
  core_.Fail(*request, absl::CancelledError("no request needs the output; set `keep` to generate it to its end"));
}

void Dispatcher::StartPrefill(const RouterAction& action, absl::Time now) {
  Request& request = *action.request;
  action.hedge ? requests_.NameHedge(request) : requests_.NameForPlacement(request);
  ForgetPlace(request, now);
  // Other outputs may have ended since the request arrived.
  request.asked.spec.expected_tokens = ExpectedTokens(request.asked, lengths_);
  PrefillJob job = request.StartPrefill(action);
  job.spec.arrival_offset = ArrivalOffset(request, now);
  job.lease = PrefillLease(contexts_, request.asked);
  actions_.push_back(WorkerCommand{action.worker, std::move(job)});
}

void Dispatcher::AppendPrompt(const RouterAction& action, absl::Time now) {
  Request& request = *action.request;
  PrefillAppend append = request.AppendPrompt(action);
  if (append.last && workload_) append.arrival_offset = ArrivalOffset(request, now);
  append.lease = PrefillLease(contexts_, request.asked);
  actions_.push_back(WorkerCommand{action.worker, std::move(append)});
}

void Dispatcher::StartDecode(const RouterAction& action, absl::Time now) {
  Request& request = *action.request;
  request.decoded_by = action.worker;
  NoteDecodeWorker(request);
  DecodeJob job = request.StartDecode();
  job.spec.arrival_offset = ArrivalOffset(request, now);
  actions_.push_back(WorkerCommand{action.worker, std::move(job)});
}

// The decode worker is also the worker that computes the prompt.
void Dispatcher::StartScoring(const RouterAction& action, absl::Time now) {
  Request& request = *action.request;
  requests_.NameForPlacement(request);
  ForgetPlace(request, now);
  if (request.output.empty()) request.stages.Prefilled({}, now);
  request.prefilled_by = action.worker;
  StartDecode(action, now);
}

// The worker finds the request by the name of its next hand-off, which is drawn here.
void Dispatcher::SendKeepRoom(const RouterAction& action) {
  Request& request = *action.request;
  requests_.NameForWorkers(request);
  request.named_ahead = true;
  actions_.push_back(WorkerCommand{action.worker, request.AskForRoom(action)});
}

void Dispatcher::NoteDecodeWorker(Request& request) const {
  const auto& workers = core_.registry().workers();
  // KV of the prompt, and perhaps of the output, comes from the prefill worker.
  request.NoteNumerics(absl::StrCat(workers.at(request.prefilled_by).info.numerics_id, " ",
                                    workers.at(request.decoded_by).info.numerics_id));
}

void Dispatcher::End(const RouterAction& action, absl::Time now) {
  Request& request = *action.request;
  ahead_.Ended(request, now);
  RequestOutcome outcome = request.Outcome(action.status, now);
  outcome.retry_after = action.retry_after;
  outcome.context = LeaseOf(contexts_, request.asked);
  request.stages.ended = now;
  lives_.Keep(request, outcome);
  EndContext(contexts_, request.asked, outcome.status.ok() ? request.prefilled_by : "", now);
  request.prefill_hint ? graph_.EndedWithoutOutput(request.node)
                       : graph_.Ended(request.node, request.ForDownstreams(outcome.status), now, outcome.retry_after);
  const bool cut_off = !outcome.status.ok() || outcome.finish != FinishReason::kStop;
  lengths_.Learn(SourceOf(request.asked), request.completion_tokens, cut_off);
  if (workload_) workload_->Ended(request, now);
  if (gate_) gate_->Ended(request, now);
  workflows_.Ended(request.flow, now);
  if (request.prefill_hint) {
    actions_.push_back(PrefillHintEnded{outcome.status.code()});
  } else if (!request.shadow) {
    actions_.push_back(RequestEnded{{request.id, request.number}, std::move(outcome)});
  }
  requests_.Remove(request);
}

// --- views ---------------------------------------------------------------------------------------

void Dispatcher::CheckInvariants() const {
  core_.CheckInvariants();
  graph_.CheckInvariants();
  values_.CheckInvariants();
  contexts_.CheckInvariants();
  if (workload_) workload_->CheckInvariants();
  if (gate_) gate_->CheckInvariants();
  requests_.CheckInvariants();
  ahead_.CheckInvariants();
  workflows_.CheckInvariants();
  BATON_CHECK(requests_.size() == core_.live_requests(), "the table has requests that the core does not have");
}

}  // namespace baton
