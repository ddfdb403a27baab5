#include "simulator/cluster.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "metrics/worker_load.h"
#include "simulator/hash.h"

namespace baton {
namespace {

const char* const kRouter = "router";
// Limit of virtual time. A request that waits longer is taken to hang.
constexpr absl::Duration kMaxVirtualTime = absl::Hours(10);

Dispatcher::Options OptionsOf(const ClusterShape& shape) {
  Dispatcher::Options options{
      .shortest_first = shape.shortest_first, .sessions = shape.sessions, .shadow_prefill = shape.shadow_prefill};
  options.limits.placement.routing = shape.routing;
  options.limits.room_wait = shape.room_wait;
  return options;
}

// Returns the weights' id for SimulatedBackend. Different names have different ids.
uint64_t WeightsOf(const std::string& name) { return name == SimulatedCluster::kModel ? 0 : Fnv1a(name); }

// Returns a value that is equal for equal names only. It is not a digest of data.
Digest DigestOf(const std::string& module) {
  Digest digest{};
  const uint64_t name = Fnv1a(module);
  std::memcpy(digest.data(), &name, sizeof(name));
  return digest;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SimulatedCluster>> SimulatedCluster::Create(ClusterShape shape) {
  const int64_t blocks = shape.blocks.value_or(BlocksBeside(shape.model, shape.device));
  if (blocks < BlocksFor(shape.step_tokens)) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", WeightBytes(shape.model) / 1e9,
                                                   " GB of weights, which leaves ", blocks, " KV blocks on device ",
                                                   shape.device.name));
  }
  return std::unique_ptr<SimulatedCluster>(new SimulatedCluster(std::move(shape)));
}

SimulatedCluster::SimulatedCluster(ClusterShape shape)
    : shape_(std::move(shape)),
      blocks_(shape_.blocks.value_or(BlocksBeside(shape_.model, shape_.device))),
      core_(shape_.network),
      router_(Models(), OptionsOf(shape_), RouterOutlets(), core_.queue) {
  for (const GroupShape& group : shape_.groups) {
    for (int32_t i = 0; i < group.prefill_workers; ++i) {
      StartPrefill(absl::StrCat("prefill", prefills_.size()), group.module);
    }
    for (const std::string& decoder : group.decoders) {
      AddDecode(absl::StrCat("decode", decodes_.size()), {decoder, group.module, decoder == group.module});
    }
  }
  if (!shape_.groups.empty()) return;
  for (int32_t i = 0; i < shape_.prefill_workers; ++i) StartPrefill(absl::StrCat("prefill", i), kModel);
  for (int32_t i = 0; i < shape_.decode_workers; ++i) AddDecode(absl::StrCat("decode", i), {kModel, kModel});
  if (shape_.pace) AddDecode("paced", {kPaced, kModel, /*makes_same_kv=*/true, shape_.pace});
}

WorkerInfo SimulatedCluster::InfoOf(const WorkerAddress& address, const std::string& model, const std::string& module,
                                    WorkerRole role) {
  return {.role = role,
          .address = address,
          .incarnation = Incarnation(++incarnations_),
          .model = model,
          .module_digest = DigestOf(module),
          .weights_digest = DigestOf(model),
          .numerics_id = "simulated",
          .layout = SimulatedKvLayout(shape_.model),
          .blocks_total = blocks_,
          .context = static_cast<int32_t>(shape_.model.context),
          .max_batch = shape_.max_batch};
}

void SimulatedCluster::StartPrefill(const WorkerAddress& address, const std::string& module) {
  WorkerInfo info = InfoOf(address, module, module, WorkerRole::kPrefill);
  info.staging_blocks = info.host_blocks = shape_.host_blocks;
  SimulatedPrefill::Options options{
      .engine = {}, .model = shape_.model, .device = shape_.device, .weights = WeightsOf(module)};
  options.engine.blocks = blocks_;
  options.engine.staging.host = shape_.host_blocks;
  options.engine.vocab = SimulatedBackend::kVocab;
  options.engine.context = shape_.model.context;
  options.engine.step_tokens = shape_.step_tokens;
  options.engine.increment = shape_.increment.value_or(0);
  options.engine.streaming_step = shape_.streaming_step;
  options.engine.sender.self = {.prefill_address = address,
                                .prefill_incarnation = info.incarnation,
                                .module_digest = info.module_digest,
                                .layout = info.layout,
                                .numerics_id = info.numerics_id};
  options.reach = [this](const WorkerAddress& to) -> SimulatedDecode& { return *decodes_.at(to); };
  options.done = [this, address](PrefillDone done) {
    SendToRouter(address, [this, address, done = std::move(done)] { router_.OnPrefillDone(address, done); });
  };
  options.failed = [this, address](RequestFailed failed) {
    SendToRouter(address, [this, address, failed = std::move(failed)] { router_.OnFailed(address, failed); });
  };
  prefills_[address] = std::make_unique<SimulatedPrefill>(address, std::move(options), core_);
  infos_[address] = info;
  router_.Attach(address, info);
}

void SimulatedCluster::AddDecode(const WorkerAddress& address, const Decoder& decoder) {
  const WorkerInfo info = InfoOf(address, decoder.model, decoder.module, WorkerRole::kDecode);
  SimulatedDecode::Options options{.engine = {},
                                   .model = shape_.model,
                                   .device = shape_.device,
                                   .weights = WeightsOf(decoder.makes_same_kv ? decoder.module : decoder.model),
                                   .step_time = decoder.pace};
  options.engine.handoff.module_digest = info.module_digest;
  options.engine.handoff.layout = info.layout;
  options.engine.handoff.numerics_id = info.numerics_id;
  options.engine.handoff.incarnation = info.incarnation;
  options.engine.handoff.transport_descriptor = address;
  options.engine.model = {
      .tokenizer = &tokenizer_, .vocab = SimulatedBackend::kVocab, .eos_ids = {}, .positions = shape_.model.context};
  options.engine.blocks = blocks_;
  options.engine.max_batch = info.max_batch;
  options.engine.shares_output = decoder.makes_same_kv;
  options.send = [this, address](DecodeEvents events) {
    SendToRouter(address, [this, address, events = std::move(events)]() mutable {
      router_.OnEvents(address, std::move(events));
    });
  };
  decodes_[address] = std::make_unique<SimulatedDecode>(address, std::move(options), core_);
  infos_[address] = info;
  router_.Attach(address, info);
}

std::vector<ServedModel> SimulatedCluster::Models() const {
  std::vector<ServedModel> models;
  std::vector<std::string> names;
  for (const GroupShape& group : shape_.groups) names.insert(names.end(), group.decoders.begin(), group.decoders.end());
  if (names.empty()) names = {kModel, kPaced};
  for (const std::string& name : names) {
    ServedModel& model = models.emplace_back();
    model.name = name;
    model.context = static_cast<int32_t>(shape_.model.context);
    model.vocab = SimulatedBackend::kVocab;
    model.tokenizer = std::make_unique<LetterTokenizer>();
  }
  return models;
}

SimulatedRouter::Outlets SimulatedCluster::RouterOutlets() {
  SimulatedRouter::Outlets outlets;
  outlets.command = [this](WorkerCommand command) { Command(std::move(command)); };
  outlets.tokens = [this](const RequestId& id, std::vector<TokenId> tokens) {
    core_.network.Send(kRouter, live_.at(id).client, [this, id, tokens = std::move(tokens)] {
      Ran& ran = ran_.at(id);
      if (!tokens.empty()) ran.first = std::min(ran.first, Now());
      ran.tokens.insert(ran.tokens.end(), tokens.begin(), tokens.end());
    });
  };
  outlets.end = [this](const RequestId& id, const RequestOutcome& outcome) {
    core_.network.Send(kRouter, live_.at(id).client, [this, id, outcome] {
      Ran& ran = ran_.at(id);
      ran.ended = Now();
      ran.status = outcome.status;
      ran.prompt_tokens = outcome.prompt_tokens;
      ran.cached_tokens = outcome.cached_tokens;
      ran.times = outcome.times;
      ran.total = outcome.total;
      const auto live = live_.extract(id);
      if (live.mapped().ended != nullptr) live.mapped().ended();
    });
  };
  return outlets;
}

void SimulatedCluster::Submit(size_t client, SimulatedRequest request, std::function<void()> ended) {
  BATON_CHECK(!ran_.contains(request.id), request.id);
  ran_[request.id] = {.submitted = Now()};
  BeginReports();
  const WorkerAddress address = absl::StrCat("client", client);
  live_[request.id] = {address, std::move(ended)};
  core_.network.Send(address, kRouter,
                     [this, request = std::move(request)]() mutable { router_.Submit(std::move(request)); });
}

void SimulatedCluster::BeginReports() {
  if (!shape_.load_reports || std::exchange(reports_loads_, true)) return;
  // Real workers report while they are idle too, so the router has their loads already.
  ForEachLoad([this](const WorkerAddress& worker, const WorkerLoad& load) { router_.OnLoad(worker, load); });
  ReportAfterPeriod();
}

void SimulatedCluster::ReportAfterPeriod() {
  core_.queue.After(absl::FromChrono(kLoadPeriod), [this] {
    reports_loads_ = !live_.empty();
    if (!reports_loads_) return;
    ForEachLoad([this](const WorkerAddress& worker, const WorkerLoad& load) {
      SendToRouter(worker, [this, worker, load] { router_.OnLoad(worker, load); });
    });
    ReportAfterPeriod();
  });
}

void SimulatedCluster::ForEachLoad(absl::FunctionRef<void(const WorkerAddress&, const WorkerLoad&)> visit) const {
  for (const auto& [address, worker] : prefills_) visit(address, ToWorkerLoad(worker->engine().load(), false));
  for (const auto& [address, worker] : decodes_) visit(address, ToWorkerLoad(worker->engine().load(), false));
}

void SimulatedCluster::Cancel(const RequestId& id) {
  const auto live = live_.find(id);
  if (live != live_.end()) core_.network.Send(live->second.client, kRouter, [this, id] { router_.Cancel(id); });
}

// Wraps a message of a stream. A message in flight is lost when its stream breaks.
EventQueue::Event SimulatedCluster::OnStream(const WorkerAddress& worker, EventQueue::Event arrive) {
  return [this, worker, stream = streams_[worker], arrive = std::move(arrive)]() mutable {
    if (streams_.at(worker) == stream) arrive();
  };
}

void SimulatedCluster::SendToRouter(const WorkerAddress& worker, EventQueue::Event arrive) {
  core_.network.Send(worker, kRouter, OnStream(worker, std::move(arrive)));
}

void SimulatedCluster::Command(WorkerCommand command) {
  const WorkerAddress worker = command.worker;
  core_.network.Send(kRouter, worker, OnStream(worker, [this, worker, what = std::move(command.what)]() mutable {
                       std::visit([&](auto& job) { Do(worker, std::move(job)); }, what);
                     }));
}

void SimulatedCluster::Do(const WorkerAddress& worker, PrefillJob job) {
  jobs_[worker].insert(job.request_id);
  prefills_.at(worker)->Submit(std::move(job));
}

void SimulatedCluster::Do(const WorkerAddress& worker, DecodeJob job) {
  jobs_[worker].insert(job.request_id);
  decodes_.at(worker)->Start(std::move(job));
}

void SimulatedCluster::Do(const WorkerAddress& worker, const CancelJob& cancel) {
  const auto prefill = prefills_.find(worker);
  if (prefill != prefills_.end()) return prefill->second->Cancel(cancel.request_id);
  decodes_.at(worker)->Cancel(cancel.request_id);
}

void SimulatedCluster::BreakStream(const WorkerAddress& worker) {
  router_.OnLost(worker);
  for (const RequestId& job : std::exchange(jobs_[worker], {})) Do(worker, CancelJob{job});
  if (decodes_.contains(worker)) Do(worker, KeepRoom{});
  ++streams_[worker];
  router_.Attach(worker, infos_.at(worker));
}

void SimulatedCluster::Kill(const WorkerAddress& prefill) {
  prefills_.at(prefill)->Die();
  dead_.push_back(std::move(prefills_.extract(prefill).mapped()));
  jobs_.erase(prefill);
  ++streams_[prefill];
  router_.OnLost(prefill);
}

void SimulatedCluster::After(absl::Duration wait, EventQueue::Event event) {
  ++pending_events_;
  core_.queue.After(wait, [this, event = std::move(event)]() mutable {
    --pending_events_;
    event();
  });
}

void SimulatedCluster::RunFor(absl::Duration time) {
  bool over = false;
  core_.queue.After(time, [&over] { over = true; });
  while (!over) {
    ArmRouter();
    core_.queue.RunOne();
  }
}

void SimulatedCluster::RunUntilIdle() {
  const absl::Time began = Now();
  const auto busy = [this] {
    return !live_.empty() || pending_events_ > 0 ||
           std::ranges::any_of(prefills_, [](const auto& p) { return !p.second->engine().idle(); }) ||
           std::ranges::any_of(decodes_, [](const auto& d) { return !d.second->engine().idle(); });
  };
  while (busy()) {
    ArmRouter();
    BATON_CHECK(core_.queue.RunOne() && Now() - began < kMaxVirtualTime,
                live_.empty() ? "a worker never becomes idle" : absl::StrCat(live_.begin()->first, " never ends"));
  }
}

void SimulatedCluster::ArmRouter() {
  timer_.By(core_.queue, router_.NextTick(), [this] { router_.Tick(); });
}

std::map<absl::StatusCode, int64_t> SimulatedCluster::HandoffsEnded() const {
  std::map<absl::StatusCode, int64_t> ended;
  for (const auto& [address, worker] : prefills_) {
    for (const auto& [code, count] : worker->engine().load().totals.handoffs.ended) ended[code] += count;
  }
  return ended;
}

int64_t SimulatedCluster::HostTokens() const {
  int64_t tokens = 0;
  for (const auto& [address, worker] : prefills_) {
    const PrefillTotals totals = worker->engine().load().totals;
    tokens += totals.tokens.host + totals.low_priority.host;
  }
  return tokens;
}

int64_t SimulatedCluster::BlocksHeld() const {
  router_.CheckInvariants();
  int64_t held = 0;
  const auto count = [&](const BlockPool::Counts& counts) { held += counts.referenced + counts.quarantined; };
  for (const auto& [address, worker] : prefills_) {
    worker->engine().CheckInvariants();
    count(worker->engine().load().blocks);
  }
  for (const auto& [address, worker] : decodes_) {
    worker->engine().CheckInvariants();
    count(worker->engine().load().blocks);
  }
  return held;
}

}  // namespace baton
