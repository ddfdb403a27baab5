#include "server/router.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"
#include "kv/prefix_key.h"
#include "server/request_context.h"
#include "server/worker_convert.h"

namespace baton {
namespace {

constexpr std::chrono::milliseconds kTick(10);

// Names of the prompt's full blocks among the prompts of this router; workers' keys hash the module digest as well.
std::vector<BlockKey> RouterKeys(const ClientRequest& request) {
  constexpr std::array<uint8_t, 32> kNoDigest{};
  return BlockKeys(RootKey(kNoDigest, absl::StrCat(request.served->family, "\n", request.cache_salt)), request.tokens);
}

uint64_t DrawNonce() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

RouteRequest ToRoute(const ClientRequest& request) {
  return {.id = request.id,
          .model = request.served->name,
          .session = request.session,
          .keys = RouterKeys(request),
          .prompt_tokens = static_cast<int32_t>(request.tokens.size()),
          .max_new_tokens = request.sampling.max_tokens,
          .open = !request.segments.empty(),
          .priority = request.priority,
          .prefill_only = request.prefill_only,
          .holder = request.context.holder,
          .held_tokens = request.context.tokens,
          .deadline = request.deadline};
}

Workload::Arrival ToArrival(const ClientRequest& request, int64_t uncached) {
  Workload::Arrival arrival{.id = request.id,
                            .tenant = request.cache_salt,
                            .model = request.served->name,
                            .workflow = request.workflow,
                            .agent = request.agent,
                            .upstreams = {},
                            .priority = request.priority,
                            .prompt_tokens = uncached,
                            .max_tokens = request.sampling.max_tokens,
                            .expected_tokens = request.expected_tokens};
  // Of a prompt that still grows, what stands behind its first reference is no part of its tokens yet.
  int64_t known = 0;
  for (const PromptSegment& segment : request.segments) {
    if (const auto* reference = std::get_if<Reference>(&segment)) {
      arrival.upstreams.push_back(reference->upstream);
    } else {
      known += std::ssize(std::get<std::vector<TokenId>>(segment));
    }
  }
  arrival.prompt_tokens += std::max<int64_t>(known - std::ssize(request.tokens), 0);
  if (request.prefill_only) {
    arrival.max_tokens = 0;
  } else if (!request.segments.empty() && !request.has_max_tokens) {
    arrival.max_tokens = kDefaultMaxTokens;  // about what it will be
  }
  return arrival;
}

}  // namespace

Router::Router(Options options, const Clock& clock, const ChannelFactory& channels, Metrics& metrics)
    : clock_(clock), nonce_(DrawNonce()), metrics_(metrics), core_(options.limits), graph_(options.agents) {
  if (options.shortest_first) workload_.emplace(*options.shortest_first);
  const auto lost = [this](const WorkerAddress& link) { OnLost(link); };
  for (const WorkerAddress& address : options.prefill_workers) {
    prefill_links_[address] = std::make_unique<PrefillLink>(
        address, channels,
        PrefillLink::Handlers{[this](const auto& link, const auto& event) { OnPrefillEvent(link, event); }, lost});
  }
  for (const WorkerAddress& address : options.decode_workers) {
    BATON_CHECK(!prefill_links_.contains(address), "one address is both a prefill and a decode worker");
    decode_links_[address] = std::make_unique<DecodeLink>(
        address, channels,
        DecodeLink::Handlers{[this](const auto& link, const auto& event) { OnDecodeEvent(link, event); }, lost});
  }
  ticker_.emplace(kTick, [this] { Tick(); });
}

Router::~Router() {
  EndAll();
  ticker_.reset();
  for (auto& [address, link] : prefill_links_) link->Stop();
  for (auto& [address, link] : decode_links_) link->Stop();
}

absl::StatusOr<RequestTicket> Router::Submit(ClientRequest request, std::shared_ptr<RequestSink> sink) {
  if (!request.context.id.empty()) {
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(BeginContext(contexts_, request, clock_.Now()));
  }
  // Hashes the prompt, so before the lock.
  std::optional<RouteRequest> route;
  if (request.segments.empty()) route = ToRoute(request);
  std::vector<RequestId> upstreams;
  if (!request.workflow.empty()) upstreams = UpstreamsOf(request);
  Deliveries deliveries;
  RequestTicket ticket{.id = request.id};
  {
    const std::lock_guard lock(mutex_);
    const absl::Time now = clock_.Now();
    const RequestId& id = ticket.id;
    // Already in place when the first action needs it.
    const auto [record, is_new] = records_.try_emplace(id);
    if (!is_new) EndContext(contexts_, request, "", now);
    if (!is_new) return absl::AlreadyExistsError(absl::StrCat("request_id: '", id, "' is in use by a live request"));
    ticket.number = record->second.number = ++submitted_;
    record->second.request = std::move(request);
    record->second.sink = std::move(sink);
    record->second.arrived = record->second.complete = now;
    record->second.upstreams = std::move(upstreams);
    if (absl::Status status = Enter(id, std::move(route), now); !status.ok()) {
      EndContext(contexts_, records_.at(id).request, "", now);
      records_.erase(id);
      graph_.Ended(id, status, now);
      if (workload_) workload_->Ended(id, /*complete=*/false, now);
      return status;
    }
    Act(deliveries);
  }
  Deliver(std::move(deliveries));
  return ticket;
}

absl::Status Router::Enter(const RequestId& id, std::optional<RouteRequest> route, absl::Time now) {
  ClientRequest& request = records_.at(id).request;
  if (route) {
    RETURN_IF_ERROR(graph_.Add(id, request.cache_salt, *request.served->tokenizer));
    return SubmitToCore(*std::move(route), now);
  }
  const int64_t most = int64_t{request.served->context} - (request.prefill_only ? 0 : 1);
  RETURN_IF_ERROR(graph_.Submit({.id = id,
                                 .tenant = request.cache_salt,
                                 .tokenizer = request.served->tokenizer.get(),
                                 .segments = request.segments,
                                 .join = request.join,
                                 .most_tokens = most},
                                now));
  // What is known of it already: all of it, if what it waits for is over.
  for (AgentAction& action : graph_.TakeActions()) {
    if (const auto* failed = std::get_if<PromptFailed>(&action)) return failed->status;
    auto& grew = std::get<PromptGrew>(action);
    request.tokens.insert(request.tokens.end(), grew.tokens.begin(), grew.tokens.end());
    if (!grew.complete) continue;
    request.segments.clear();
    if (!request.prefill_only) RETURN_IF_ERROR(SettleMaxTokens(request));
    RETURN_IF_ERROR(CompleteContext(contexts_, request));
  }
  return SubmitToCore(ToRoute(request), now);
}

absl::Status Router::SubmitToCore(RouteRequest route, absl::Time now) {
  if (workload_) {
    workload_->Arrived(ToArrival(records_.at(route.id).request, core_.FewestUncached(route)), now);
    route.turn = now + workload_->Handicap(route.id, now);
  }
  return core_.Submit(std::move(route), now);
}

absl::Duration Router::Handicap(const RequestId& id) const {
  return workload_ ? workload_->Handicap(id, clock_.Now()) : absl::ZeroDuration();
}

void Router::Cancel(const RequestTicket& ticket) {
  Deliveries deliveries;
  {
    const std::lock_guard lock(mutex_);
    const auto found = records_.find(ticket.id);
    if (found == records_.end() || found->second.number != ticket.number) return;
    core_.Cancel(ticket.id);
    Act(deliveries);
  }
  Deliver(std::move(deliveries));
}

void Router::LetGo(const RequestTicket& ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (graph_.HasReaders(ticket.id)) return;
  }
  Cancel(ticket);
}

Router::Record* Router::Find(const RequestId& worker_id) {
  const auto found = records_.find(worker_id.substr(0, worker_id.find('#')));
  return found != records_.end() && found->second.worker_id == worker_id ? &found->second : nullptr;
}

void Router::EndAll() {
  Deliveries deliveries;
  {
    const std::lock_guard lock(mutex_);
    core_.EndAll();
    Act(deliveries);
  }
  Deliver(std::move(deliveries));
}

void Router::Tick() {
  const absl::Time now = clock_.Now();
  for (auto& [address, link] : prefill_links_) link->Tick(now);
  for (auto& [address, link] : decode_links_) link->Tick(now);
  Deliveries deliveries;
  {
    const std::lock_guard lock(mutex_);
    core_.Tick(now);
    graph_.Tick(now);
    if (workload_) workload_->Tick(now);
    contexts_.Tick(now);
    Act(deliveries);
    metrics_.OnRequests(core_.live_requests(), core_.waiting_requests());
    const auto prefill = std::ranges::count_if(
        core_.workers(), [](const auto& worker) { return worker.second.info.role == WorkerRole::kPrefill; });
    metrics_.OnWorkers(prefill, static_cast<int64_t>(core_.workers().size()) - prefill);
  }
  Deliver(std::move(deliveries));
}

// --- actions of the core -------------------------------------------------------------------------------------------

void Router::Act(Deliveries& deliveries) {
  while (true) {
    std::vector<RouterAction> core_actions = core_.TakeActions();
    for (const RouterAction& action : core_actions) Act(action, deliveries);
    std::vector<AgentAction> agent_actions = graph_.TakeActions();  // after an end, which completes prompts
    if (core_actions.empty() && agent_actions.empty()) return;
    for (AgentAction& action : agent_actions) {
      std::visit([this](auto& concrete) { Act(concrete); }, action);
    }
  }
}

void Router::Act(const RouterAction& action, Deliveries& deliveries) {
  switch (action.kind) {
    case RouterAction::Kind::kStartPrefill:
      return StartPrefill(action);
    case RouterAction::Kind::kAppend:
    case RouterAction::Kind::kClose:
      return AppendPrompt(action);
    case RouterAction::Kind::kStartDecode:
      return StartDecode(action);
    case RouterAction::Kind::kCancel:
      return SendCancel(action);
    case RouterAction::Kind::kEnd:
      return End(action, deliveries);
  }
}

// A request may end between an action of the graph and this: then it is nobody's.
void Router::Act(PromptGrew& grew) {
  const auto found = records_.find(grew.id);
  if (found == records_.end()) return;
  Record& record = found->second;
  ClientRequest& request = record.request;
  request.tokens.insert(request.tokens.end(), grew.tokens.begin(), grew.tokens.end());
  const auto tokens = static_cast<int32_t>(request.tokens.size());
  if (!grew.complete) return core_.Grew(grew.id, tokens);
  request.segments.clear();
  record.complete = clock_.Now();
  if (!request.prefill_only) {
    if (absl::Status status = SettleMaxTokens(request); !status.ok()) return core_.Fail(grew.id, status);
  }
  if (absl::Status status = CompleteContext(contexts_, request); !status.ok()) return core_.Fail(grew.id, status);
  core_.Closed(grew.id, tokens, request.sampling.max_tokens, record.complete);
}

void Router::Act(PromptRestarted& restarted) {
  const auto found = records_.find(restarted.id);
  if (found == records_.end()) return;
  Record& record = found->second;
  record.request.tokens.clear();
  record.restart |= record.sent > 0;
  record.sent = 0;
}

void Router::Act(PromptFailed& failed) { core_.Fail(failed.id, failed.status); }

void Router::StartPrefill(const RouterAction& action) {
  Record& record = records_.at(action.request);
  record.worker_id = absl::StrCat(action.request, "#", absl::Hex(nonce_), ".", ++attempts_);
  const ClientRequest& request = record.request;
  PrefillJob job;
  job.request_id = record.worker_id;
  job.tokens = request.tokens;
  job.cache_salt = request.cache_salt;
  job.max_new_tokens = request.sampling.max_tokens;
  job.priority = request.priority;
  job.handicap = Handicap(request.id);
  job.decode_worker = action.decode_worker;
  job.open = action.open;
  job.lease = LeaseOf(contexts_, request);
  record.sent = request.tokens.size();
  record.restart = false;
  record.placed = clock_.Now();
  record.prefilled = absl::InfiniteFuture();
  worker::v1::PrefillCommand command;
  *command.mutable_prefill() = ToProto(job);
  prefill_links_.at(action.worker)->Send(std::move(command));
}

void Router::AppendPrompt(const RouterAction& action) {
  Record& record = records_.at(action.request);
  const ClientRequest& request = record.request;
  PrefillAppend append;
  append.request_id = record.worker_id;
  append.tokens.assign(request.tokens.begin() + static_cast<std::ptrdiff_t>(record.sent), request.tokens.end());
  append.restart = std::exchange(record.restart, false);
  append.last = action.kind == RouterAction::Kind::kClose;
  append.max_new_tokens = request.sampling.max_tokens;
  append.decode_worker = action.decode_worker;
  if (append.last && workload_) append.handicap = Handicap(request.id);
  append.lease = LeaseOf(contexts_, request);
  record.sent = request.tokens.size();
  worker::v1::PrefillCommand command;
  *command.mutable_append() = ToProto(append);
  prefill_links_.at(action.worker)->Send(std::move(command));
}

void Router::StartDecode(const RouterAction& action) {
  const Record& record = records_.at(action.request);
  DecodeJob job;
  job.request_id = record.worker_id;
  job.reservation = record.done->reservation;
  job.decode_incarnation = record.done->decode_incarnation;
  job.blocks = record.done->blocks;
  job.tokens = record.request.tokens;
  job.cache_salt = record.request.cache_salt;
  job.sampling = record.request.sampling;
  job.priority = record.request.priority;
  job.handicap = Handicap(record.request.id);
  worker::v1::DecodeCommand command;
  *command.mutable_decode() = ToProto(job);
  decode_links_.at(action.worker)->Send(std::move(command));
}

void Router::SendCancel(const RouterAction& action) {
  const RequestId id = records_.at(action.request).worker_id;
  if (const auto prefill = prefill_links_.find(action.worker); prefill != prefill_links_.end()) {
    worker::v1::PrefillCommand command;
    command.mutable_cancel()->set_request_id(id);
    prefill->second->Send(std::move(command));
  } else {
    worker::v1::DecodeCommand command;
    command.mutable_cancel()->set_request_id(id);
    decode_links_.at(action.worker)->Send(std::move(command));
  }
}

void Router::End(const RouterAction& action, Deliveries& deliveries) {
  const auto found = records_.find(action.request);
  BATON_CHECK(found != records_.end(), action.request);
  Record& record = found->second;
  RequestOutcome outcome;
  outcome.status = action.status;
  outcome.retry_after = action.retry_after;
  outcome.finish = record.finish.value_or(record.request.prefill_only ? FinishReason::kLength : FinishReason::kStop);
  outcome.prompt_tokens = static_cast<int32_t>(record.request.tokens.size());
  outcome.completion_tokens = record.completion_tokens;
  outcome.first_token = record.first_token;
  outcome.upstream = record.complete - record.arrived;
  outcome.total = clock_.Now() - record.arrived;
  if (record.done) {
    // The prompt's last token has no KV before it is decoded, so it never counts as cached.
    outcome.cached_tokens = record.request.prefill_only
                                ? record.done->cached_tokens + record.done->shared_tokens
                                : std::max(outcome.prompt_tokens - 1 - record.done->computed_tokens, 0);
    outcome.queue = record.queue;
    outcome.prefill = record.done->compute;
    outcome.handoff = record.done->handoff;
  }
  const absl::Time now = clock_.Now();
  if (!record.request.workflow.empty()) {
    RequestLife life = LifeOf(record);
    life.ended = now;
    life.status = outcome.status;
    timeline_.Keep(std::move(life));
  }
  outcome.context = LeaseOf(contexts_, record.request);
  EndContext(contexts_, record.request, outcome.status.ok() ? record.prefilled_by : "", now);
  graph_.Ended(action.request, outcome.status, now);
  if (workload_) {
    const bool complete = outcome.status.ok() && outcome.finish != FinishReason::kCancelled;
    workload_->Ended(action.request, complete, now);
  }
  metrics_.OnEnd(outcome, record.done.has_value());
  deliveries.push_back({std::move(record.sink), std::move(outcome)});
  records_.erase(found);
}

void Router::Deliver(Deliveries deliveries) {
  for (Delivery& delivery : deliveries) {
    if (auto* update = std::get_if<TokenUpdate>(&delivery.what)) {
      delivery.sink->OnUpdate(std::move(*update));
    } else {
      delivery.sink->OnEnd(std::get<RequestOutcome>(delivery.what));
    }
  }
}

// --- views ---------------------------------------------------------------------------------------------------------

absl::Status Router::Readiness(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  return core_.Readiness(model, /*prefill_only=*/false);
}

std::vector<RouterCore::Decoder> Router::Decoders() const {
  const std::lock_guard lock(mutex_);
  return core_.Decoders();
}

std::vector<Router::WorkerView> Router::Workers() const {
  const std::lock_guard lock(mutex_);
  std::vector<WorkerView> views;
  const auto add = [&](WorkerRole role, const WorkerAddress& link) {
    WorkerView view{role, link, std::nullopt};
    if (const auto found = core_.workers().find(link); found != core_.workers().end()) {
      // All but its memory of prefixes, which is large.
      view.attached.emplace();
      view.attached->info = found->second.info;
      view.attached->load = found->second.load;
    }
    views.push_back(std::move(view));
  };
  for (const auto& [address, link] : prefill_links_) add(WorkerRole::kPrefill, address);
  for (const auto& [address, link] : decode_links_) add(WorkerRole::kDecode, address);
  return views;
}

int32_t Router::live_requests() const {
  const std::lock_guard lock(mutex_);
  return core_.live_requests();
}

int32_t Router::waiting_requests() const {
  const std::lock_guard lock(mutex_);
  return core_.waiting_requests();
}

}  // namespace baton
