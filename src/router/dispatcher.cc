#include "router/dispatcher.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <tuple>

#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"
#include "router/request_context.h"
#include "router/shadow_prefill.h"

namespace baton {

PreparedRequest Prepare(ClientRequest request) {
  PreparedRequest prepared;
  if (request.segments.empty()) prepared.route = ToRoute(request);
  if (!request.workflow.empty()) prepared.upstreams = UpstreamsOf(request);
  prepared.request = std::move(request);
  return prepared;
}

Dispatcher::Dispatcher(Options options)
    : nonce_(options.nonce),
      shadow_prefill_(options.shadow_prefill),
      most_with_shadows_(options.limits.live_requests / 2),
      core_(options.limits),
      graph_(options.agents) {
  if (options.shortest_first) workload_.emplace(*options.shortest_first);
  if (options.sessions) gate_.emplace(*options.sessions);
}

// --- clients -------------------------------------------------------------------------------------------------------

absl::Status Dispatcher::Begin(ClientRequest& request, absl::Time now) {
  return request.context.id.empty() ? absl::OkStatus() : BeginContext(contexts_, request, now);
}

absl::StatusOr<RequestTicket> Dispatcher::Submit(PreparedRequest prepared, absl::Time now) {
  const RequestTicket ticket{ScopedId(prepared.request.spec.cache_domain, prepared.request.id), ++submitted_};
  const RequestId& id = ticket.id;
  // Already in place when the first action needs it.
  const auto [found, is_new] = records_.try_emplace(id);
  if (!is_new) {
    EndContext(contexts_, prepared.request, "", now);
    return absl::AlreadyExistsError(
        absl::StrCat("request_id: '", prepared.request.id, "' is in use by a live request"));
  }
  RequestRecord& record = found->second;
  record.id = id;
  record.number = ticket.number;
  record.request = std::move(prepared.request);
  record.arrived = record.complete = now;
  record.upstreams = std::move(prepared.upstreams);
  if (absl::Status status = Enter(id, std::move(prepared.route), now); !status.ok()) {
    EndContext(contexts_, records_.at(id).request, "", now);
    records_.erase(id);
    graph_.Refused(id);
    if (workload_) workload_->Ended(id, /*complete=*/false, now);
    if (gate_) gate_->Ended(id, now);
    Act(now);  // for those that refer to one which failed at once
    return status;
  }
  Act(now);
  return ticket;
}

absl::Status Dispatcher::Enter(const RequestId& id, std::optional<RouteRequest> route, absl::Time now) {
  ClientRequest& request = records_.at(id).request;
  if (route) {
    RETURN_IF_ERROR(graph_.Add(id, *request.served->tokenizer));
    return SubmitToCore(*std::move(route), now);
  }
  ASSIGN_OR_RETURN(PromptGrew known, graph_.Submit(ToPromptSpec(request), now));
  request.spec.tokens = std::move(known.tokens);
  if (known.complete) RETURN_IF_ERROR(Complete(request));
  return SubmitToCore(ToRoute(request), now);
}

absl::Status Dispatcher::Complete(ClientRequest& request) {
  request.segments.clear();
  if (!request.prefill_only) RETURN_IF_ERROR(SettleMaxTokens(request));
  return CompleteContext(contexts_, request);
}

absl::Status Dispatcher::SubmitToCore(RouteRequest route, absl::Time now) {
  RequestRecord& record = records_.at(route.id);
  route.held = record.held = gate_ && !record.request.session.empty();
  if (route.held) RETURN_IF_ERROR(gate_->Arrived(route.id, SessionOf(record.request), IsNeeded(route.id), now));
  if (workload_) {
    workload_->Arrived(ToArrival(record.request, core_.FewestUncached(route)), now);
    route.turn = now + workload_->Handicap(route.id, now);
  }
  if (gate_ && !route.held && IsNeeded(route.id)) PassUpstreams(route.id, now);
  return core_.Submit(std::move(route), now);
}

void Dispatcher::Admit(const RequestId& id, absl::Time now) {
  const auto found = records_.find(id);
  if (found == records_.end()) return;
  found->second.held = false;
  found->second.session_wait = now - found->second.arrived;
  core_.Admit(id, now);
  PassUpstreams(id, now);
}

bool Dispatcher::IsNeeded(const RequestId& id) const {
  absl::flat_hash_set<RequestId> seen;
  std::vector<RequestId> open{id};
  while (!open.empty()) {
    const std::vector<RequestId> readers = graph_.ReadersOf(open.back());
    open.pop_back();
    for (const RequestId& reader : readers) {
      const SessionGate::State state = gate_->StateOf(reader);
      if (state == SessionGate::State::kAdmitted) return true;
      if (state == SessionGate::State::kUnknown && seen.insert(reader).second) open.push_back(reader);
    }
  }
  return false;
}

void Dispatcher::PassUpstreams(const RequestId& id, absl::Time now) {
  absl::flat_hash_set<RequestId> seen;
  std::vector<RequestId> open{id};
  while (!open.empty()) {
    const std::vector<RequestId> upstreams = graph_.UpstreamsOf(open.back());
    open.pop_back();
    for (const RequestId& upstream : upstreams) {
      if (gate_->StateOf(upstream) != SessionGate::State::kUnknown) {
        gate_->Needed(upstream, now);
      } else if (seen.insert(upstream).second) {
        open.push_back(upstream);
      }
    }
  }
}

absl::Duration Dispatcher::Handicap(const RequestId& id, absl::Time now) const {
  return workload_ ? workload_->Handicap(id, now) : absl::ZeroDuration();
}

void Dispatcher::Cancel(const RequestTicket& ticket, absl::Time now) {
  const auto found = records_.find(ticket.id);
  if (found == records_.end() || found->second.number != ticket.number) return;
  core_.Cancel(ticket.id);
  Act(now);
}

void Dispatcher::LetGo(const RequestTicket& ticket, absl::Time now) {
  if (!IsAwaited(ticket.id)) return Cancel(ticket, now);
  const auto found = records_.find(ticket.id);
  if (found != records_.end() && found->second.number == ticket.number) let_go_.insert(ticket.id);
}

bool Dispatcher::IsAwaited(const RequestId& id) const {
  return std::ranges::any_of(graph_.ReadersOf(id), [this](const RequestId& reader) {
    const auto found = records_.find(reader);
    return found == records_.end() || !found->second.follower;
  });
}

void Dispatcher::EndAll(absl::Time now) {
  core_.EndAll();
  Act(now);
}

// --- workers -------------------------------------------------------------------------------------------------------

SessionGate::Capacity Dispatcher::KvCapacity() const {
  SessionGate::Capacity capacity;
  for (const auto& [link, worker] : core_.workers()) {
    if (worker.info.role != WorkerRole::kPrefill) continue;
    capacity.blocks += worker.info.blocks_total;
    capacity.host_blocks += worker.info.host_blocks;
  }
  return capacity;
}

RequestRecord* Dispatcher::Find(const RequestId& worker_id) {
  const auto found = called_.find(worker_id);
  return found == called_.end() ? nullptr : &records_.at(found->second);
}

void Dispatcher::WorkerAttached(const WorkerAddress& link, const WorkerInfo& info, absl::Time now) {
  core_.WorkerAttached(link, info, now);
  if (gate_) gate_->SetCapacity(KvCapacity());
  Act(now);
}

void Dispatcher::WorkerLost(const WorkerAddress& link, absl::Time now) {
  std::vector<RequestId> theirs;
  if (const auto lost = core_.workers().find(link); lost != core_.workers().end()) {
    theirs.assign(lost->second.requests.begin(), lost->second.requests.end());
  }
  core_.WorkerLost(link, now);
  contexts_.WorkerLost(link);
  if (gate_) {
    gate_->WorkerLost(link);
    gate_->SetCapacity(KvCapacity());
  }
  Act(now);
  for (const RequestId& id : theirs) NoteWaiting(id);
}

// If it waits to begin anew.
void Dispatcher::NoteWaiting(const RequestId& id) {
  const auto record = records_.find(id);
  if (record == records_.end() || !core_.Waits(id)) return;
  record->second.placed = record->second.prefilled = absl::InfiniteFuture();
  record->second.done.reset();
}

void Dispatcher::OnPrefillDone(const WorkerAddress& link, PrefillDone done, absl::Time now) {
  RequestRecord* found = Find(done.request_id);
  if (found == nullptr) return Discard(done);
  RequestRecord& record = *found;
  done.request_id = record.id;
  const bool counts = gate_ && !record.request.session.empty() && !record.follower;  // which may be no turn of it
  std::vector<BlockKey> keys = core_.KeysOf(record.id);
  if (core_.PrefillDone(link, done.request_id, done.decode_incarnation)) {
    if (workload_) workload_->Prefilled(done.request_id);
    record.prefilled = now;
    record.prefilled_by = link;
    // All that was not prefill or hand-off was waiting, at the router or at the worker.
    const absl::Duration served = done.compute + done.copied + done.handoff;
    record.queue = std::max(record.prefilled - record.complete - served, absl::ZeroDuration());
    record.done = std::move(done);
    if (counts) TellGate(record, keys, now);
    if (record.unheard()) keys = GrownKeys(record, std::move(keys));
    core_.Remember(link, std::span(keys).first(record.BlocksAt(keys.size())));
    EndShadowsOf(record);
  }
  Act(now);
}

void Dispatcher::TellGate(const RequestRecord& record, std::span<const BlockKey> keys, absl::Time now) {
  const PrefillDone& done = *record.done;
  gate_->Prefilled(SessionOf(record.request),
                   {.worker = record.prefilled_by,
                    .keys = keys,
                    .found = std::ssize(record.request.spec.tokens) - 1 - done.computed_tokens,
                    .computed = done.computed_tokens,
                    .queued = done.queued,
                    .compute = done.compute,
                    .copied = done.copied,
                    .awaited = !record.unheard()},
                   now);
}

void Dispatcher::Discard(const PrefillDone& done) {
  for (const auto& [link, worker] : core_.workers()) {
    if (worker.info.role != WorkerRole::kDecode || worker.info.incarnation != done.decode_incarnation) continue;
    actions_.push_back(WorkerCommand{link, CancelJob{done.request_id}});
  }
}

void Dispatcher::OnFailed(const WorkerAddress& link, const RequestFailed& failed, absl::Time now) {
  const RequestRecord* found = Find(failed.request_id);
  if (found == nullptr) return;
  const RequestId id = found->id;
  if (found->follower) {
    core_.Fail(id, failed.status);  // another worker might have room, but there is little
  } else {
    core_.Failed(link, id, {failed.status, failed.retry_after, failed.no_room_to_decode}, now);
  }
  Act(now);
  NoteWaiting(id);
}

void Dispatcher::OnUpdate(const WorkerAddress& link, TokenUpdate update, absl::Time now) {
  RequestRecord* found = Find(update.request_id);
  if (found == nullptr) return;
  RequestRecord& record = *found;
  if (record.request.spec.sampling.logprobs && update.logprobs.size() != update.tokens.size()) {  // writers rely on it
    const std::string what = absl::StrCat("decode worker ", link, " sent ", update.logprobs.size(),
                                          " log probabilities for ", update.tokens.size(), " tokens");
    actions_.push_back(WorkerCommand{link, CancelJob{update.request_id}});  // it goes on there
    return OnFailed(link, {update.request_id, absl::InternalError(what), absl::ZeroDuration(), false}, now);
  }
  update.request_id = record.id;
  if (!core_.TokensArrived(link, update.request_id, update.finish.has_value())) return;
  const auto tokens = static_cast<int32_t>(update.tokens.size());
  const bool first = record.completion_tokens == 0;
  const absl::Duration wait = now - (first ? record.complete : record.last_update);
  if (first && tokens > 0) record.first_token = now - record.arrived;
  record.last_update = now;
  record.completion_tokens += tokens;
  record.finish = update.finish;
  graph_.Made(update.request_id, update.tokens, update.text);
  if (shadow_prefill_) Shadow(record, update.tokens, /*all=*/false, now);
  if (workload_) workload_->Made(update.request_id, tokens);
  actions_.push_back(
      RequestProgress{{record.id, record.number}, std::move(update), first, wait, record.request.served});
  Act(now);  // its end, where this was the last
}

// --- time ----------------------------------------------------------------------------------------------------------

void Dispatcher::Tick(absl::Time now) {
  core_.Tick(now);
  graph_.Tick(now);
  if (workload_) workload_->Tick(now);
  contexts_.Tick(now);
  if (gate_) gate_->Tick(now);
  Act(now);
}

absl::Time Dispatcher::NextTick() const {
  const absl::Time workload = workload_ ? workload_->NextTick() : absl::InfiniteFuture();
  const absl::Time gate = gate_ ? gate_->NextTick() : absl::InfiniteFuture();
  return std::min({core_.NextTick(), graph_.NextTick(), workload, gate, contexts_.NextTick()});
}

// --- what core and graph decided -----------------------------------------------------------------------------------

void Dispatcher::Act(absl::Time now) {
  while (true) {
    const std::vector<RouterAction> core_actions = core_.TakeActions();
    for (const RouterAction& action : core_actions) Act(action, now);
    std::vector<AgentAction> agent_actions = graph_.TakeActions();  // after an end, which completes prompts
    for (AgentAction& action : agent_actions) {
      std::visit([&](auto& concrete) { Act(concrete, now); }, action);
    }
    const std::vector<RequestId> admitted = gate_ ? gate_->TakeAdmitted() : std::vector<RequestId>();
    for (const RequestId& id : admitted) Admit(id, now);
    if (core_actions.empty() && agent_actions.empty() && admitted.empty()) return;
  }
}

void Dispatcher::Act(const RouterAction& action, absl::Time now) {
  switch (action.kind) {
    case RouterAction::Kind::kStartPrefill:
      return StartPrefill(action, now);
    case RouterAction::Kind::kAppend:
    case RouterAction::Kind::kClose:
      return AppendPrompt(action, now);
    case RouterAction::Kind::kStartDecode:
      return StartDecode(action, now);
    case RouterAction::Kind::kCancel:
      actions_.push_back(WorkerCommand{action.worker, CancelJob{records_.at(action.request).worker_id}});
      return;
    case RouterAction::Kind::kEnd:
      return End(action, now);
  }
}

// A request may end between an action of the graph and this: then it is nobody's.
void Dispatcher::Act(PromptGrew& grew, absl::Time now) {
  const auto found = records_.find(grew.id);
  if (found == records_.end()) return;
  RequestRecord& record = found->second;
  ClientRequest& request = record.request;
  request.spec.tokens.Append(grew.tokens);
  const auto tokens = static_cast<int32_t>(request.spec.tokens.size());
  if (!grew.complete) return core_.Grew(grew.id, tokens);
  record.complete = now;
  if (absl::Status status = Complete(request); !status.ok()) return core_.Fail(grew.id, status);
  core_.Closed(grew.id, tokens, request.spec.sampling.max_tokens, now);
  NoteWaiting(grew.id);
  if (record.follower) core_.EndBy(grew.id, now + kShadowWait);
}

void Dispatcher::Act(PromptRestarted& restarted, absl::Time) {
  const auto found = records_.find(restarted.id);
  if (found == records_.end()) return;
  RequestRecord& record = found->second;
  record.request.spec.tokens = {};
  record.restart |= record.sent > 0;
  record.sent = 0;
}

void Dispatcher::Act(PromptFailed& failed, absl::Time) { core_.Fail(failed.id, failed.status); }

void Dispatcher::StartPrefill(const RouterAction& action, absl::Time now) {
  RequestRecord& record = records_.at(action.request);
  called_.erase(record.worker_id);
  record.worker_id = absl::StrCat(record.request.id, "#", absl::Hex(nonce_), ".", ++attempts_);
  called_[record.worker_id] = action.request;
  record.placed = now;
  record.prefilled = absl::InfiniteFuture();
  record.done.reset();
  PrefillJob job = record.StartPrefill(action);
  job.spec.arrival_offset = Handicap(action.request, now);
  job.lease = PrefillLease(contexts_, record.request);
  actions_.push_back(WorkerCommand{action.worker, std::move(job)});
}

void Dispatcher::AppendPrompt(const RouterAction& action, absl::Time now) {
  RequestRecord& record = records_.at(action.request);
  PrefillAppend append = record.AppendPrompt(action);
  if (append.last && workload_) append.arrival_offset = Handicap(action.request, now);
  append.lease = PrefillLease(contexts_, record.request);
  actions_.push_back(WorkerCommand{action.worker, std::move(append)});
}

void Dispatcher::StartDecode(const RouterAction& action, absl::Time now) {
  RequestRecord& record = records_.at(action.request);
  record.decoded_by = action.worker;
  DecodeJob job = record.StartDecode();
  job.spec.arrival_offset = Handicap(action.request, now);
  actions_.push_back(WorkerCommand{action.worker, std::move(job)});
}

void Dispatcher::End(const RouterAction& action, absl::Time now) {
  const auto found = records_.find(action.request);
  BATON_CHECK(found != records_.end(), action.request);
  RequestRecord& record = found->second;
  if (record.shadowed) Shadow(record, {}, /*all=*/true, now);
  RequestOutcome outcome = record.Outcome(action.status, now);
  outcome.retry_after = action.retry_after;
  outcome.context = LeaseOf(contexts_, record.request);
  if (!record.request.workflow.empty()) {
    RequestLife life = record.Life();
    life.ended = now;
    life.status = outcome.status;
    timeline_.Keep(std::move(life));
  }
  EndContext(contexts_, record.request, outcome.status.ok() ? record.prefilled_by : "", now);
  record.follower ? graph_.EndedUnread(action.request) : graph_.Ended(action.request, outcome.status, now);
  if (workload_) {
    const bool complete = outcome.status.ok() && outcome.finish != FinishReason::kCancelled;
    workload_->Ended(action.request, complete, now);
  }
  if (gate_) gate_->Ended(action.request, now);
  if (record.follower) {
    const auto others = followers_.find(TenantOf(record.request));
    if (--others->second == 0) followers_.erase(others);
    actions_.push_back(FollowerEnded{outcome.status.code()});
  } else if (!record.shadow) {
    actions_.push_back(RequestEnded{{action.request, record.number}, std::move(outcome), record.Parties()});
  }
  called_.erase(record.worker_id);
  if (record.shadow) ForgetShadow(record);
  records_.erase(found);
  let_go_.erase(action.request);
  for (const RequestId& id : let_go_) {
    if (!IsAwaited(id)) core_.Cancel(id);
  }
}

// --- views ---------------------------------------------------------------------------------------------------------

Timeline::Lives Dispatcher::LivesOf(const std::string& workflow, const std::string& tenant, absl::Time now) {
  Timeline::Lives lives = timeline_.Find(workflow, tenant, now);
  for (const auto& [id, record] : records_) {
    if (record.request.workflow != workflow || record.request.spec.cache_domain != tenant) continue;
    lives.push_back(std::make_shared<const RequestLife>(record.Life()));
  }
  return lives;
}

std::vector<WorkflowView> Dispatcher::WorkflowsOf(const std::string& tenant, size_t most, absl::Time now) {
  absl::flat_hash_map<std::string, WorkflowView> views;
  const auto count = [&views](const std::string& name, absl::Time arrived, bool live) {
    WorkflowView& view = views[name];
    view.name = name;
    ++view.requests;
    view.live += live;
    view.latest = std::max(view.latest, arrived);
  };
  for (const auto& life : timeline_.OfTenant(tenant, now)) count(life->workflow, life->arrived, /*live=*/false);
  for (const auto& [id, record] : records_) {
    if (record.request.workflow.empty() || record.request.spec.cache_domain != tenant) continue;
    count(record.request.workflow, record.arrived, /*live=*/true);
  }
  std::vector<WorkflowView> sorted;
  for (auto& [name, view] : views) sorted.push_back(std::move(view));
  std::ranges::sort(sorted, std::greater<>(),
                    [](const WorkflowView& view) { return std::tie(view.latest, view.name); });
  if (sorted.size() > most) sorted.resize(most);
  return sorted;
}

std::vector<SessionGate::View> Dispatcher::LatestSessions(size_t most) const {
  return gate_ ? gate_->Latest(most) : std::vector<SessionGate::View>();
}

void Dispatcher::CheckInvariants() const {
  core_.CheckInvariants();
  graph_.CheckInvariants();
  contexts_.CheckInvariants();
  if (workload_) workload_->CheckInvariants();
  if (gate_) gate_->CheckInvariants();
  BATON_CHECK(static_cast<int32_t>(records_.size()) == core_.live_requests(), "records of requests that are over");
  for (const auto& [session, ids] : shadows_) {
    for (const RequestId& id : ids) BATON_CHECK(records_.at(id).shadow, id);
  }
  absl::flat_hash_map<std::string, int32_t> followers;
  for (const auto& [id, record] : records_) {
    if (record.follower) ++followers[TenantOf(record.request)];
  }
  BATON_CHECK(followers == followers_, "followers of tenants");
  for (const auto& [worker_id, id] : called_) BATON_CHECK(records_.at(id).worker_id == worker_id, worker_id);
}

}  // namespace baton
