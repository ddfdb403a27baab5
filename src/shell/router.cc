#include "shell/router.h"

#include <algorithm>
#include <random>
#include <tuple>
#include <utility>

#include "base/logging.h"
#include "base/status.h"
#include "base/strings.h"
#include "rpc/worker_convert.h"
#include "shell/request_log.h"

namespace baton {
namespace {

uint64_t DrawNonce() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

// The period of the checks whether a thread still uses a retired WorkerLink.
constexpr absl::Duration kRetiredCheck = absl::Seconds(1);

void LogHealth(const WorkerWatch::Change& change) {
  if (change.health == WorkerHealth::kWell) return spdlog::info("worker {}: well again", change.worker);
  spdlog::warn("worker {}: {}: {}; new requests go to other workers if there are any", change.worker,
               NameOf(change.health), change.reason);
}

template <typename Command>
Command ToCommand(const PrefillJob& job) {
  Command command;
  *command.mutable_prefill() = ToProto(job);
  return command;
}

template <typename Command>
Command ToCommand(const PrefillAppend& append) {
  Command command;
  *command.mutable_append() = ToProto(append);
  return command;
}

template <typename Command>
Command ToCommand(const DecodeJob& job) {
  Command command;
  *command.mutable_decode() = ToProto(job);
  return command;
}

template <typename Command>
Command ToCommand(const CancelJob& cancel) {
  Command command;
  command.mutable_cancel()->set_request_id(cancel.request_id);
  return command;
}

template <typename Command>
Command ToCommand(const KeepRoom& request) {
  Command command;
  *command.mutable_keep_room() = ToProto(request);
  return command;
}

}  // namespace

Router::Router(Options options, const Clock& clock, const ChannelFactory& channels, Metrics& metrics)
    : clock_(clock),
      metrics_(metrics),
      dispatcher_({.limits = options.limits,
                   .agents = options.agents,
                   .values = options.values,
                   .shortest_first = options.shortest_first,
                   .sessions = options.sessions,
                   .nonce = DrawNonce(),
                   .shadow_prefill = options.shadow_prefill}),
      channels_(channels),
      alarm_(clock, [this] { return Tick(); }) {
  if (options.vllm_metrics) vllm_metrics_.emplace(metrics, *options.vllm_metrics);
  SetWorkers(WorkerRole::kPrefill, options.prefill_workers);
  SetWorkers(WorkerRole::kDecode, options.decode_workers);
  reader_ = metrics.Attach<Dispatcher>({}, [this](absl::FunctionRef<void(const Dispatcher&)> read) {
    const std::lock_guard lock(mutex_);
    read(dispatcher_);
  });
}

Router::~Router() {
  EndAll();
  alarm_.Stop();
  for (auto& [address, reached] : prefill_links_) reached.link->Stop();
  for (auto& [address, reached] : decode_links_) reached.link->Stop();
}

void Router::SetWorkers(WorkerRole role, const std::vector<WorkerAddress>& addresses) {
  const auto lost = [this](const WorkerAddress& link) { OnLost(link); };
  const auto closed = [this] { alarm_.Wake(); };
  {
    const std::lock_guard lock(mutex_);
    if (role == WorkerRole::kPrefill) {
      const auto on_event = [this](const auto& link, auto& event) { OnPrefillEvent(link, event); };
      Name<PrefillLink>(role, addresses, {on_event, lost, closed}, prefill_links_, prefill_named_twice_);
    } else {
      const auto on_event = [this](const auto& link, auto& event) { OnDecodeEvent(link, event); };
      Name<DecodeLink>(role, addresses, {on_event, lost, closed}, decode_links_, decode_named_twice_);
    }
  }
  alarm_.Wake();
}

template <typename Link>
void Router::Name(WorkerRole role, const std::vector<WorkerAddress>& addresses, const typename Link::Handlers& handlers,
                  Links<Link>& links, std::set<WorkerAddress>& named_twice) {
  std::set<WorkerAddress> twice;
  for (auto& [address, reached] : links) reached.named = false;
  for (const WorkerAddress& address : addresses) {
    const auto known = links.find(address);
    if (known != links.end()) {
      known->second.named = true;
    } else if (prefill_links_.contains(address) || decode_links_.contains(address)) {
      twice.insert(address);
      if (!named_twice.contains(address)) {
        spdlog::error("worker {}: named as a prefill and as a decode worker; keeping its first role", address);
      }
    } else {
      links[address].link = std::make_shared<Link>(address, role, channels_, clock_, handlers);
    }
  }
  // Addresses that are no longer in the list are dropped. Membership may name new ones forever, so
  // keeping them would grow without bound.
  named_twice = std::move(twice);
}

template <typename Link>
std::vector<std::shared_ptr<Link>> Router::Unneeded(Links<Link>& links) {
  std::vector<std::shared_ptr<Link>> unneeded;
  absl::erase_if(links, [&](auto& entry) {
    auto& [address, reached] = entry;
    if (reached.named || dispatcher_.core().registry().workers().contains(address)) return false;
    spdlog::info("worker {}: removed from membership", address);
    unneeded.push_back(std::move(reached.link));
    return true;
  });
  return unneeded;
}

template <typename Link>
absl::Time Router::TickLinks(Links<Link>& links) {
  std::vector<std::shared_ptr<Link>> needed, unneeded;
  {
    const std::lock_guard lock(mutex_);
    unneeded = Unneeded(links);
    for (const auto& [address, reached] : links) needed.push_back(reached.link);
  }
  for (const auto& link : unneeded) {
    link->Stop();
    retired_.push_back(link);
  }
  absl::Time next = absl::InfiniteFuture();
  for (const auto& link : needed) {
    link->Tick();
    next = std::min(next, link->NextTick());
  }
  return next;
}

absl::Time Router::TickLinks() {
  const absl::Time next = std::min(TickLinks(prefill_links_), TickLinks(decode_links_));
  std::erase_if(retired_, [](const auto& link) { return link.use_count() == 1; });
  return retired_.empty() ? next : std::min(next, clock_.Now() + kRetiredCheck);
}

void Router::Refuse(const WorkerAddress& link, const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  const auto prefill = prefill_links_.find(link);
  const auto decode = decode_links_.find(link);
  if (prefill != prefill_links_.end()) prefill->second.link->Refuse(why);
  if (decode != decode_links_.end()) decode->second.link->Refuse(why);
}

absl::StatusOr<RequestTicket> Router::Submit(ClientRequest request, std::shared_ptr<RequestSink> sink) {
  if (!request.context.id.empty()) {
    absl::Status begun;
    Drive([&](Dispatcher& dispatcher, absl::Time now) { begun = dispatcher.Begin(request, now); });
    RETURN_IF_ERROR(begun);
  }
  auto prepared = std::make_unique<Request>(std::move(request));
  absl::StatusOr<RequestTicket> ticket;
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    ticket = dispatcher.Submit(std::move(prepared), now);
    if (!ticket.ok()) return;
    clients_[ticket->number] =
        std::make_shared<ClientOutbox>([this, sink = std::move(sink)](ClientEvent& event) { Deliver(*sink, event); });
  });
  return ticket;
}

void Router::Refused(const RefusedRequest& request) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.Refused(request, now); });
}

absl::Status Router::CheckSlots(const std::string& tenant) const {
  const std::lock_guard lock(mutex_);
  return dispatcher_.core().slots().Check(tenant);
}

int32_t Router::ExpectedTokens(const ClientRequest& request) const {
  const std::lock_guard lock(mutex_);
  return baton::ExpectedTokens(request, dispatcher_.lengths());
}

absl::Status Router::ChangeValues(absl::FunctionRef<absl::Status(Values&, absl::Time)> change) {
  absl::Status status;
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    status = dispatcher.ChangeValues([&](Values& values) { return change(values, now); }, now);
  });
  return status;
}

bool Router::AddPrefillHint(const RequestTicket& call, ClientRequest prompt) {
  absl::Status status;
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    status = dispatcher.AddPrefillHint(call, std::move(prompt), now);
  });
  if (!status.ok()) metrics_.OnPrefillHint(status.code());
  return status.ok();
}

void Router::Cancel(const RequestTicket& ticket, CallEnd why) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.Cancel(ticket, now, why); });
}

void Router::Fail(const RequestTicket& ticket, const absl::Status& status) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.Fail(ticket, status, now); });
}

absl::StatusOr<int32_t> Router::CancelWorkflow(const std::string& workflow, const std::string& cache_domain) {
  if (workflow.empty()) return absl::InvalidArgumentError("workflow: is empty, expected a name");
  int32_t cancelled = 0;
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    cancelled = dispatcher.CancelWorkflow({cache_domain, workflow}, now);
  });
  return cancelled;
}

void Router::Detach(const RequestTicket& ticket) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.Detach(ticket, now); });
}

void Router::EndAll() {
  Drive([](Dispatcher& dispatcher, absl::Time now) { dispatcher.EndAll(now); });
}

absl::Time Router::Tick() {
  const absl::Time links = TickLinks();
  Drive([this](Dispatcher& dispatcher, absl::Time now) {
    ++ticks_;
    // Until the alarm is set below, no event needs to wake it.
    next_tick_ = absl::InfinitePast();
    dispatcher.Tick(now);
  });
  const std::lock_guard lock(mutex_);
  return next_tick_ = std::min(links, dispatcher_.NextTick());
}

// --- Events and their actions ----------------------------------------------------------------

void Router::Drive(absl::FunctionRef<void(Dispatcher&, absl::Time)> event) {
  Work work;
  bool earlier = false;
  {
    const std::lock_guard lock(mutex_);
    event(dispatcher_, clock_.Now());
    work = Act();
    earlier = dispatcher_.NextTick() < next_tick_;
    if (earlier) next_tick_ = dispatcher_.NextTick();
  }
  // The alarm wakes first, because Finish may take long if other threads add to the same outboxes.
  if (earlier) alarm_.Wake();
  Finish(std::move(work));
}

Router::Work Router::Act() {
  Work work;
  std::vector<DispatchAction> actions = dispatcher_.TakeActions();
  work.outboxes.reserve(actions.size());
  for (DispatchAction& action : actions) {
    if (auto* command = std::get_if<WorkerCommand>(&action)) {
      Post(std::move(*command), work);
    } else if (auto* progress = std::get_if<RequestProgress>(&action)) {
      AddEvent(clients_.at(progress->number), std::move(*progress), work);
    } else if (const auto* charge = std::get_if<RequestCharge>(&action)) {
      AddEvent(clients_.at(charge->number), *charge, work);
    } else if (const auto* hint = std::get_if<PrefillHintEnded>(&action)) {
      work.prefill_hints.push_back(hint->code);
    } else if (auto* value = std::get_if<ValueEnded>(&action)) {
      work.values.push_back(std::move(*value));
    } else if (auto* change = std::get_if<WorkerWatch::Change>(&action)) {
      work.health.push_back(std::move(*change));
    } else {
      auto& ended = std::get<RequestEnded>(action);
      const auto client = clients_.extract(ended.ticket.number);
      AddEvent(client.mapped(), std::move(ended), work);
    }
  }
  return work;
}

void Router::AddEvent(const std::shared_ptr<ClientOutbox>& client, ClientEvent event, Work& work) {
  client->Add(std::move(event));
  work.outboxes.push_back(client);
}

void Router::Post(WorkerCommand command, Work& work) {
  if (auto* job = std::get_if<PrefillJob>(&command.what)) return PostTo(prefill_links_, command.worker, *job, work);
  if (auto* start = std::get_if<DecodeJob>(&command.what)) return PostTo(decode_links_, command.worker, *start, work);
  if (auto* room = std::get_if<KeepRoom>(&command.what)) return PostTo(decode_links_, command.worker, *room, work);
  if (auto* append = std::get_if<PrefillAppend>(&command.what)) {
    return PostTo(prefill_links_, command.worker, *append, work);
  }
  auto& cancel = std::get<CancelJob>(command.what);
  if (prefill_links_.contains(command.worker)) return PostTo(prefill_links_, command.worker, cancel, work);
  PostTo(decode_links_, command.worker, cancel, work);
}

template <typename Link, typename What>
void Router::PostTo(Links<Link>& links, const WorkerAddress& worker, What& what, Work& work) {
  const auto found = links.find(worker);
  if (found == links.end()) return;  // the worker was lost and is not in the list
  using Command = typename Link::CommandType;
  found->second.link->Post([what = std::move(what)] { return ToCommand<Command>(what); });
  work.outboxes.push_back(found->second.link);
}

void Router::Finish(Work work) {
  for (const absl::StatusCode code : work.prefill_hints) metrics_.OnPrefillHint(code);
  for (const ValueEnded& value : work.values) {
    metrics_.OnValue(value.status.code());
    if (value.sink != nullptr) value.sink->OnValueEnded(value.status);
  }
  for (const WorkerWatch::Change& change : work.health) {
    metrics_.OnHealth(change.health);
    LogHealth(change);
  }
  for (const auto& outbox : work.outboxes) outbox->Drain();
}

void Router::Deliver(RequestSink& sink, ClientEvent& event) {
  if (auto* progress = std::get_if<RequestProgress>(&event)) {
    metrics_.OnProgress(*progress);
    if (vllm_metrics_) vllm_metrics_->OnProgress(*progress);
    return sink.OnUpdate(std::move(progress->update));
  }
  if (const auto* charge = std::get_if<RequestCharge>(&event)) return sink.OnCharge(*charge);
  const RequestOutcome& outcome = std::get<RequestEnded>(event).outcome;
  // Counted and logged before the client receives its answer. A client that has its answer
  // therefore finds the log line and the counts.
  metrics_.OnEnd(outcome);
  if (vllm_metrics_) vllm_metrics_->OnEnd(outcome);
  LogRequestEnd(outcome);
  sink.OnEnd(outcome);
}

absl::StatusOr<int32_t> Router::Drain(const WorkerAddress& worker, bool drained) {
  bool known = false;
  int32_t remaining = 0;
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    known = prefill_links_.contains(worker) || decode_links_.contains(worker);
    if (!known) return;
    remaining = static_cast<int32_t>(dispatcher.Drain(worker, drained, now));
  });
  if (!known) {
    return absl::NotFoundError(
        StrCat("worker: the router has no worker '", worker, "'; expected an address as `baton status` shows it"));
  }
  if (drained) {
    spdlog::warn("worker {}: an operator drains it; {} of its requests stay for now", worker, remaining);
  } else {
    spdlog::info("worker {}: an operator has ended its drain", worker);
  }
  return remaining;
}

// --- Views ----------------------------------------------------------------

absl::Status Router::Readiness(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  // A Generate request is not prefill-only.
  const absl::Status status = dispatcher_.core().registry().Readiness(model, false);
  const bool awaited = dispatcher_.core().registry().AwaitedUntil(model, false) > clock_.Now();
  return awaited ? absl::OkStatus() : status;
}

std::vector<WorkerRegistry::Decoder> Router::Decoders() const {
  const std::lock_guard lock(mutex_);
  return dispatcher_.core().registry().Decoders();
}

std::vector<Router::WorkerView> Router::Workers() const {
  const std::lock_guard lock(mutex_);
  std::vector<WorkerView> views;
  const auto add = [&](WorkerRole role, const WorkerAddress& link, std::string problem) {
    WorkerView view{role, link, std::nullopt, std::move(problem)};
    if (const auto found = dispatcher_.core().registry().workers().find(link);
        found != dispatcher_.core().registry().workers().end()) {
      view.problem.clear();
      // Everything except the prefix index, which is large.
      view.attached.emplace();
      view.attached->info = found->second.info;
      view.attached->load = found->second.load;
      view.attached->health = found->second.health;
      view.attached->health_reason = found->second.health_reason;
      view.attached->health_since = found->second.health_since;
      view.attached->drained = found->second.drained;
    }
    views.push_back(std::move(view));
  };
  for (const auto& [address, reached] : prefill_links_) add(WorkerRole::kPrefill, address, reached.link->problem());
  for (const auto& [address, reached] : decode_links_) add(WorkerRole::kDecode, address, reached.link->problem());
  return views;
}

Router::Sessions Router::sessions() const {
  const std::lock_guard lock(mutex_);
  const SessionGate* gate = dispatcher_.gate();
  return gate == nullptr ? Sessions{} : Sessions{gate->counts(), gate->limit(), gate->Latest(kMostSessions)};
}

int32_t Router::live_requests() const {
  const std::lock_guard lock(mutex_);
  return dispatcher_.core().live_requests();
}

int64_t Router::ticks() const {
  const std::lock_guard lock(mutex_);
  return ticks_;
}

int32_t Router::waiting_requests() const {
  const std::lock_guard lock(mutex_);
  return dispatcher_.core().waiting().size();
}

// --- Reports of workers ----------------------------------------------------------------

absl::Status Router::Attach(const WorkerAddress& link, WorkerRole role, const worker::v1::WorkerInfo& proto) {
  ASSIGN_OR_RETURN(const WorkerInfo info, FromProto(proto, role));
  bool again = false, known = false;
  absl::Status fits;
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    known = prefill_links_.contains(link) || decode_links_.contains(link);
    again = dispatcher.core().registry().workers().contains(link);
    fits = dispatcher.core().registry().MayAttach(info);
    if (known && !again && fits.ok()) dispatcher.WorkerAttached(link, info, now);
  });
  if (!known) return absl::FailedPreconditionError("the worker is no longer in the membership");
  if (again) return absl::FailedPreconditionError("the worker attached twice on one stream");
  RETURN_IF_ERROR(fits);
  spdlog::info("worker {}: attached: {} model '{}', {} blocks, {}", link,
               role == WorkerRole::kPrefill ? "prefill" : "decode", info.model, info.blocks_total, info.numerics_id);
  return absl::OkStatus();
}

void Router::OnLost(const WorkerAddress& link) {
  bool attached = false, left = false;
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    const auto found = dispatcher.core().registry().workers().find(link);
    attached = found != dispatcher.core().registry().workers().end();
    if (!attached) return;
    left = found->second.load.draining;
    if (!left) metrics_.OnLost(found->second.info.role);
    dispatcher.WorkerLost(link, now);
  });
  if (left) {
    spdlog::info("worker {}: has shut down", link);
  } else if (attached) {
    spdlog::warn("worker {}: lost", link);
  }
}

void Router::OnPrefillEvent(const WorkerAddress& link, worker::v1::PrefillEvent& event) {
  switch (event.event_case()) {
    case worker::v1::PrefillEvent::kInfo:
      if (absl::Status status = Attach(link, WorkerRole::kPrefill, event.info()); !status.ok()) Refuse(link, status);
      return;
    case worker::v1::PrefillEvent::kLoad:
      return OnLoad(link, event.load());
    case worker::v1::PrefillEvent::kStarted:
      return OnPrefillStarted(link, {event.started().request_id()});
    case worker::v1::PrefillEvent::kDone:
      return OnPrefillDone(link, FromProto(event.done()));
    case worker::v1::PrefillEvent::kFailed:
      return OnFailed(link, FromProto(event.failed()));
    case worker::v1::PrefillEvent::EVENT_NOT_SET:
      return;
  }
}

void Router::OnDecodeEvent(const WorkerAddress& link, worker::v1::DecodeEvent& event) {
  switch (event.event_case()) {
    case worker::v1::DecodeEvent::kInfo:
      if (absl::Status status = Attach(link, WorkerRole::kDecode, event.info()); !status.ok()) Refuse(link, status);
      return;
    case worker::v1::DecodeEvent::kLoad:
      return OnLoad(link, event.load());
    case worker::v1::DecodeEvent::kUpdates:
      return OnUpdates(link, *event.mutable_updates());
    case worker::v1::DecodeEvent::kFailed:
      return OnFailed(link, FromProto(event.failed()));
    case worker::v1::DecodeEvent::kRoom:
      return OnRoom(link, event.room());
    case worker::v1::DecodeEvent::EVENT_NOT_SET:
      return;
  }
}

void Router::OnLoad(const WorkerAddress& link, const worker::v1::Load& load) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.Reported(link, FromProto(load), now); });
}

void Router::OnPrefillStarted(const WorkerAddress& link, const PrefillStarted& started) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.Reported(link, started, now); });
}

void Router::OnPrefillDone(const WorkerAddress& link, PrefillDone done) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.Reported(link, std::move(done), now); });
}

void Router::OnFailed(const WorkerAddress& link, const RequestFailed& failed) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.Reported(link, failed, now); });
}

void Router::OnRoom(const WorkerAddress& link, const worker::v1::Room& room) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.Reported(link, FromProto(room), now); });
}

void Router::OnUpdates(const WorkerAddress& link, worker::v1::StepUpdates& step) {
  std::vector<TokenUpdate> updates;
  updates.reserve(static_cast<size_t>(step.updates_size()));
  for (auto& update : *step.mutable_updates()) updates.push_back(FromProto(std::move(update)));
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    for (TokenUpdate& update : updates) dispatcher.Reported(link, std::move(update), now);
  });
}

// --- Traces of workflows ----------------------------------------------------------------

absl::StatusOr<Router::Trace> Router::TraceOf(const std::string& workflow, const std::string& cache_domain) {
  if (workflow.empty()) return absl::InvalidArgumentError("workflow: is empty, expected a name");
  Trace trace;
  RefusedRequests::OfWorkflow refused;
  {
    const std::lock_guard lock(mutex_);
    trace.now = clock_.Now();
    trace.lives = dispatcher_.lives().Of(workflow, cache_domain, trace.now);
    refused = dispatcher_.lives().RefusedOf(workflow, cache_domain, trace.now);
  }
  if (trace.lives.empty() && refused.lives.empty()) {
    return absl::NotFoundError(absl::StrCat("workflow: no request of '", workflow, "' is live or ended in the last ",
                                            absl::FormatDuration(TimelineLimits{}.age), " at this router"));
  }
  Timeline::Lives all = trace.lives;
  all.insert(all.end(), refused.lives.begin(), refused.lives.end());
  trace.agents = SumsOf(all, trace.now);
  const auto arrival = [](const auto& life) { return std::tie(life->stages.arrived, life->outcome.id); };
  std::ranges::sort(trace.lives, {}, arrival);
  if (trace.lives.size() > kMostTraced) {
    trace.omitted = static_cast<int32_t>(trace.lives.size() - kMostTraced);
    trace.lives.erase(trace.lives.begin(), trace.lives.begin() + trace.omitted);
  }
  trace.refused_omitted = refused.omitted;
  const auto accepted = static_cast<std::ptrdiff_t>(trace.lives.size());
  trace.lives.insert(trace.lives.end(), refused.lives.begin(), refused.lives.end());
  std::ranges::inplace_merge(trace.lives, trace.lives.begin() + accepted, {}, arrival);
  return trace;
}

Router::Workflows Router::WorkflowsOf(const std::string& cache_domain) {
  const std::lock_guard lock(mutex_);
  const absl::Time now = clock_.Now();
  return {dispatcher_.lives().Workflows(cache_domain, kMostWorkflows, now), now};
}

}  // namespace baton
