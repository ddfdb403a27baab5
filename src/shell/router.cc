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

constexpr std::chrono::milliseconds kTick(10);

uint64_t DrawNonce() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

worker::v1::PrefillCommand ToCommand(const PrefillJob& job) {
  worker::v1::PrefillCommand command;
  *command.mutable_prefill() = ToProto(job);
  return command;
}

worker::v1::PrefillCommand ToCommand(const PrefillAppend& append) {
  worker::v1::PrefillCommand command;
  *command.mutable_append() = ToProto(append);
  return command;
}

worker::v1::DecodeCommand ToCommand(const DecodeJob& job) {
  worker::v1::DecodeCommand command;
  *command.mutable_decode() = ToProto(job);
  return command;
}

template <typename Command>
Command ToCommand(const CancelJob& cancel) {
  Command command;
  command.mutable_cancel()->set_request_id(cancel.request_id);
  return command;
}

}  // namespace

Router::Router(Options options, const Clock& clock, const ChannelFactory& channels, Metrics& metrics)
    : clock_(clock),
      metrics_(metrics),
      dispatcher_({.limits = options.limits,
                   .agents = options.agents,
                   .shortest_first = options.shortest_first,
                   .sessions = options.sessions,
                   .nonce = DrawNonce(),
                   .shadow_prefill = options.shadow_prefill}),
      channels_(channels) {
  if (options.vllm_metrics) vllm_metrics_.emplace(metrics, *options.vllm_metrics);
  SetWorkers(WorkerRole::kPrefill, options.prefill_workers);
  SetWorkers(WorkerRole::kDecode, options.decode_workers);
  ticker_.emplace(kTick, [this] { Tick(); });
  reader_ = metrics.Attach<Dispatcher>({}, [this](absl::FunctionRef<void(const Dispatcher&)> read) {
    const std::lock_guard lock(mutex_);
    read(dispatcher_);
  });
}

Router::~Router() {
  EndAll();
  ticker_.reset();
  for (auto& [address, reached] : prefill_links_) reached.link->Stop();
  for (auto& [address, reached] : decode_links_) reached.link->Stop();
}

void Router::SetWorkers(WorkerRole role, const std::vector<WorkerAddress>& addresses) {
  const auto lost = [this](const WorkerAddress& link) { OnLost(link); };
  const std::lock_guard lock(mutex_);
  if (role == WorkerRole::kPrefill) {
    Name<PrefillLink>(addresses, {[this](const auto& link, const auto& event) { OnPrefillEvent(link, event); }, lost},
                      prefill_links_, prefill_named_twice_);
  } else {
    Name<DecodeLink>(addresses, {[this](const auto& link, const auto& event) { OnDecodeEvent(link, event); }, lost},
                     decode_links_, decode_named_twice_);
  }
}

template <typename Link>
void Router::Name(const std::vector<WorkerAddress>& addresses, const typename Link::Handlers& handlers,
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
        spdlog::error("worker {}: named as a prefill and as a decode worker; it stays what it was first", address);
      }
    } else {
      links[address].link = std::make_shared<Link>(address, channels_, handlers);
    }
  }
  named_twice = std::move(twice);  // who is named no more is forgotten: strangers may name new ones all the time
}

template <typename Link>
std::vector<std::shared_ptr<Link>> Router::Unneeded(Links<Link>& links) {
  std::vector<std::shared_ptr<Link>> unneeded;
  absl::erase_if(links, [&](auto& entry) {
    auto& [address, reached] = entry;
    if (reached.named || dispatcher_.core().workers().contains(address)) return false;
    spdlog::info("worker {}: is one no more", address);
    unneeded.push_back(std::move(reached.link));
    return true;
  });
  return unneeded;
}

void Router::TickLinks() {
  std::vector<std::shared_ptr<PrefillLink>> prefill, ended_prefill;
  std::vector<std::shared_ptr<DecodeLink>> decode, ended_decode;
  {
    const std::lock_guard lock(mutex_);
    ended_prefill = Unneeded(prefill_links_);
    ended_decode = Unneeded(decode_links_);
    for (const auto& [address, reached] : prefill_links_) prefill.push_back(reached.link);
    for (const auto& [address, reached] : decode_links_) decode.push_back(reached.link);
  }
  for (const auto& link : prefill) link->Tick(clock_.Now());
  for (const auto& link : decode) link->Tick(clock_.Now());
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
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(dispatcher_.Begin(request, clock_.Now()));
  }
  PreparedRequest prepared = Prepare(std::move(request));
  absl::StatusOr<RequestTicket> ticket;
  Deliveries deliveries;
  {
    const std::lock_guard lock(mutex_);
    ticket = dispatcher_.Submit(std::move(prepared), clock_.Now());
    if (ticket.ok()) sinks_[ticket->number] = std::move(sink);
    deliveries = Act();
  }
  Deliver(std::move(deliveries));
  return ticket;
}

bool Router::Follow(const RequestTicket& call, ClientRequest prompt) {
  absl::Status status;
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    status = dispatcher.Follow(call, std::move(prompt), now);
    if (!status.ok()) metrics_.OnFollower(status.code());
  });
  return status.ok();
}

void Router::Cancel(const RequestTicket& ticket) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.Cancel(ticket, now); });
}

void Router::LetGo(const RequestTicket& ticket) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.LetGo(ticket, now); });
}

void Router::EndAll() {
  Drive([](Dispatcher& dispatcher, absl::Time now) { dispatcher.EndAll(now); });
}

void Router::Tick() {
  TickLinks();
  Drive([](Dispatcher& dispatcher, absl::Time now) { dispatcher.Tick(now); });
}

// --- what follows --------------------------------------------------------------------------------------------------

void Router::Drive(absl::FunctionRef<void(Dispatcher&, absl::Time)> event) {
  Deliveries deliveries;
  {
    const std::lock_guard lock(mutex_);
    event(dispatcher_, clock_.Now());
    deliveries = Act();
  }
  Deliver(std::move(deliveries));
}

Router::Deliveries Router::Act() {
  Deliveries deliveries;
  for (DispatchAction& action : dispatcher_.TakeActions()) {
    if (auto* command = std::get_if<WorkerCommand>(&action)) {
      Send(std::move(*command));
    } else if (auto* progress = std::get_if<RequestProgress>(&action)) {
      deliveries.push_back(ToSink(std::move(*progress)));
    } else if (const auto* follower = std::get_if<FollowerEnded>(&action)) {
      metrics_.OnFollower(follower->code);
    } else {
      deliveries.push_back(ToSink(std::get<RequestEnded>(std::move(action))));
    }
  }
  return deliveries;
}

void Router::Send(WorkerCommand command) {
  const auto prefill = prefill_links_.find(command.worker);
  const auto decode = decode_links_.find(command.worker);
  // Lost, and named no more.
  if (prefill == prefill_links_.end() && decode == decode_links_.end()) return;
  if (const auto* job = std::get_if<PrefillJob>(&command.what)) {
    prefill->second.link->Send(ToCommand(*job));
  } else if (const auto* append = std::get_if<PrefillAppend>(&command.what)) {
    prefill->second.link->Send(ToCommand(*append));
  } else if (const auto* start = std::get_if<DecodeJob>(&command.what)) {
    decode->second.link->Send(ToCommand(*start));
  } else if (const auto& cancel = std::get<CancelJob>(command.what); prefill != prefill_links_.end()) {
    prefill->second.link->Send(ToCommand<worker::v1::PrefillCommand>(cancel));
  } else {
    decode->second.link->Send(ToCommand<worker::v1::DecodeCommand>(cancel));
  }
}

Router::Delivery Router::ToSink(RequestProgress progress) {
  if (vllm_metrics_) vllm_metrics_->OnProgress(progress);
  const int64_t tokens = std::ssize(progress.update.tokens);
  metrics_.OnDelivered(tokens);
  if (!progress.first) {
    metrics_.OnTokens(progress.wait, tokens);
  } else if (tokens > 0) {
    metrics_.OnFirstToken(progress.wait);
  }
  return {sinks_.at(progress.ticket.number), std::move(progress.update)};
}

Router::Delivery Router::ToSink(RequestEnded ended) {
  metrics_.OnEnd(ended.outcome);
  if (vllm_metrics_) vllm_metrics_->OnEnd(ended);
  auto sink = sinks_.extract(ended.ticket.number);
  return {std::move(sink.mapped()), std::move(ended)};
}

void Router::Deliver(Deliveries deliveries) {
  for (Delivery& delivery : deliveries) {
    if (auto* update = std::get_if<TokenUpdate>(&delivery.what)) {
      delivery.sink->OnUpdate(std::move(*update));
    } else {
      const auto& ended = std::get<RequestEnded>(delivery.what);
      LogRequestEnd(ended.parties, ended.outcome);  // first: a client that has its answer finds the line
      delivery.sink->OnEnd(ended.outcome);
    }
  }
}

// --- views ---------------------------------------------------------------------------------------------------------

absl::Status Router::Readiness(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  const absl::Status status = dispatcher_.core().Readiness(model, /*prefill_only=*/false);
  const bool awaited = dispatcher_.core().AwaitedUntil(model, /*prefill_only=*/false) > clock_.Now();
  return awaited ? absl::OkStatus() : status;
}

std::vector<RouterCore::Decoder> Router::Decoders() const {
  const std::lock_guard lock(mutex_);
  return dispatcher_.core().Decoders();
}

std::vector<Router::WorkerView> Router::Workers() const {
  const std::lock_guard lock(mutex_);
  std::vector<WorkerView> views;
  const auto add = [&](WorkerRole role, const WorkerAddress& link) {
    WorkerView view{role, link, std::nullopt};
    if (const auto found = dispatcher_.core().workers().find(link); found != dispatcher_.core().workers().end()) {
      // All but its memory of prefixes, which is large.
      view.attached.emplace();
      view.attached->info = found->second.info;
      view.attached->load = found->second.load;
    }
    views.push_back(std::move(view));
  };
  for (const auto& [address, reached] : prefill_links_) add(WorkerRole::kPrefill, address);
  for (const auto& [address, reached] : decode_links_) add(WorkerRole::kDecode, address);
  return views;
}

Router::Sessions Router::sessions() const {
  const std::lock_guard lock(mutex_);
  return {dispatcher_.sessions(), dispatcher_.session_limit(), dispatcher_.LatestSessions(kMostSessions)};
}

int32_t Router::live_requests() const {
  const std::lock_guard lock(mutex_);
  return dispatcher_.core().live_requests();
}

int32_t Router::waiting_requests() const {
  const std::lock_guard lock(mutex_);
  return dispatcher_.core().waiting_requests();
}

// --- what workers report ---------------------------------------------------------------------------------------------

absl::Status Router::Attach(const WorkerAddress& link, WorkerRole role, const worker::v1::WorkerInfo& proto) {
  ASSIGN_OR_RETURN(const WorkerInfo info, FromProto(proto, role));
  bool again = false, known = false;
  absl::Status fits;
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    known = prefill_links_.contains(link) || decode_links_.contains(link);
    again = dispatcher.core().workers().contains(link);
    fits = dispatcher.core().MayAttach(info);
    if (known && !again && fits.ok()) dispatcher.WorkerAttached(link, info, now);
  });
  if (!known) return absl::FailedPreconditionError("it is named no more");
  if (again) return absl::FailedPreconditionError("introduced itself twice");
  RETURN_IF_ERROR(fits);
  spdlog::info("worker {}: attached: {} model '{}', {} blocks, {}", link,
               role == WorkerRole::kPrefill ? "prefill" : "decode", info.model, info.blocks_total, info.numerics_id);
  return absl::OkStatus();
}

void Router::OnLost(const WorkerAddress& link) {
  bool attached = false, left = false;
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    const auto found = dispatcher.core().workers().find(link);
    attached = found != dispatcher.core().workers().end();
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

void Router::OnPrefillEvent(const WorkerAddress& link, const worker::v1::PrefillEvent& event) {
  switch (event.event_case()) {
    case worker::v1::PrefillEvent::kInfo:
      if (absl::Status status = Attach(link, WorkerRole::kPrefill, event.info()); !status.ok()) Refuse(link, status);
      return;
    case worker::v1::PrefillEvent::kLoad:
      return OnLoad(link, event.load());
    case worker::v1::PrefillEvent::kDone:
      return OnPrefillDone(link, FromProto(event.done()));
    case worker::v1::PrefillEvent::kFailed:
      return OnFailed(link, FromProto(event.failed()));
    case worker::v1::PrefillEvent::EVENT_NOT_SET:
      return;
  }
}

void Router::OnDecodeEvent(const WorkerAddress& link, const worker::v1::DecodeEvent& event) {
  switch (event.event_case()) {
    case worker::v1::DecodeEvent::kInfo:
      if (absl::Status status = Attach(link, WorkerRole::kDecode, event.info()); !status.ok()) Refuse(link, status);
      return;
    case worker::v1::DecodeEvent::kLoad:
      return OnLoad(link, event.load());
    case worker::v1::DecodeEvent::kUpdates:
      return OnUpdates(link, event.updates());
    case worker::v1::DecodeEvent::kFailed:
      return OnFailed(link, FromProto(event.failed()));
    case worker::v1::DecodeEvent::EVENT_NOT_SET:
      return;
  }
}

void Router::OnLoad(const WorkerAddress& link, const worker::v1::Load& load) {
  const std::lock_guard lock(mutex_);
  dispatcher_.WorkerLoaded(link, FromProto(load));
}

void Router::OnPrefillDone(const WorkerAddress& link, PrefillDone done) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.OnPrefillDone(link, std::move(done), now); });
}

void Router::OnFailed(const WorkerAddress& link, const RequestFailed& failed) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.OnFailed(link, failed, now); });
}

void Router::OnUpdates(const WorkerAddress& link, const worker::v1::StepUpdates& step) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    for (const worker::v1::TokenUpdate& update : step.updates()) dispatcher.OnUpdate(link, FromProto(update), now);
  });
}

// --- traces of workflows ------------------------------------------------------------------------------

absl::StatusOr<Router::Trace> Router::TraceOf(const std::string& workflow, const std::string& tenant) {
  if (workflow.empty()) return absl::InvalidArgumentError("workflow: is empty, expected a name");
  Trace trace;
  {
    const std::lock_guard lock(mutex_);
    trace.now = clock_.Now();
    trace.lives = dispatcher_.LivesOf(workflow, tenant, trace.now);
  }
  if (trace.lives.empty()) {
    return absl::NotFoundError(absl::StrCat("workflow: no request of '", workflow, "' is live or ended in the last ",
                                            absl::FormatDuration(TimelineLimits{}.age), " at this router"));
  }
  std::ranges::sort(trace.lives, {}, [](const auto& life) { return std::tie(life->arrived, life->id); });
  if (trace.lives.size() > kMostTraced) {
    trace.omitted = static_cast<int32_t>(trace.lives.size() - kMostTraced);
    trace.lives.erase(trace.lives.begin(), trace.lives.begin() + trace.omitted);
  }
  return trace;
}

Router::Workflows Router::WorkflowsOf(const std::string& tenant) {
  const std::lock_guard lock(mutex_);
  const absl::Time now = clock_.Now();
  return {dispatcher_.WorkflowsOf(tenant, kMostWorkflows, now), now};
}

}  // namespace baton
