#include "simulator/cluster.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/strings.h"
#include "metrics/worker_load.h"
#include "simulator/hash.h"

namespace baton {
namespace {

const WorkerAddress kRouter = "router";
// Limit of virtual time. A request that waits longer is taken to hang.
constexpr absl::Duration kMaxVirtualTime = absl::Hours(10);

Dispatcher::Options OptionsOf(const ClusterShape& shape) {
  Dispatcher::Options options{
      .shortest_first = shape.shortest_first, .sessions = shape.sessions, .shadow_prefill = shape.shadow_prefill};
  options.limits.placement.routing = shape.routing;
  options.limits.room_wait = shape.room_wait;
  options.limits.live_requests = shape.live_requests;
  options.limits.waiting_prompts = shape.waiting_prompts;
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

// Names of commands for the trace.
const char* NameOf(const PrefillJob&) { return "Prefill"; }
const char* NameOf(const PrefillAppend&) { return "Append"; }
const char* NameOf(const DecodeJob&) { return "Decode"; }
const char* NameOf(const CancelJob&) { return "Cancel"; }
const char* NameOf(const KeepRoom&) { return "Keep room"; }

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
      router_process_(kRouter, core_.queue),
      router_(Models(), OptionsOf(shape_), RouterOutlets(), core_.queue) {
  const auto add = [this](WorkerAddress address, std::function<void()> start) {
    starts_.emplace(std::move(address), std::move(start)).first->second();
  };
  const auto add_prefill = [&](const std::string& module) {
    const WorkerAddress address = StrCat("prefill", prefills_.size());
    add(address, [this, address, module] { StartPrefill(address, module); });
  };
  const auto add_decode = [&](const WorkerAddress& address, const Decoder& decoder) {
    add(address, [this, address, decoder] { StartDecode(address, decoder); });
  };
  for (const GroupShape& group : shape_.groups) {
    for (int32_t i = 0; i < group.prefill_workers; ++i) add_prefill(group.module);
    for (const std::string& name : group.decoders) {
      add_decode(StrCat("decode", decodes_.size()), {name, group.module, name == group.module});
    }
  }
  if (!shape_.groups.empty()) return;
  for (int32_t i = 0; i < shape_.prefill_workers; ++i) add_prefill(kModel);
  for (size_t i = 0; std::cmp_less(i, shape_.decode_workers); ++i) {
    Decoder decoder{kModel, kModel};
    if (i < shape_.decode_blocks.size()) decoder.blocks = shape_.decode_blocks[i];
    add_decode(StrCat("decode", i), decoder);
  }
  if (shape_.pace) add_decode("paced", {kPaced, kModel, /*makes_same_kv=*/true, shape_.pace});
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
  info.host_blocks = shape_.host_blocks;
  info.staging_blocks = shape_.host_blocks + shape_.disk_blocks;
  SimulatedPrefill::Options options{
      .engine = {}, .model = shape_.model, .device = shape_.device, .weights = WeightsOf(module)};
  options.engine.blocks = blocks_;
  options.engine.staging.host = shape_.host_blocks;
  options.engine.staging.disk = shape_.disk_blocks;
  options.engine.vocab = SimulatedBackend::kVocab;
  options.engine.context = shape_.model.context;
  options.engine.step_tokens = shape_.step_tokens;
  options.engine.increment = shape_.increment.value_or(0);
  options.engine.fixed_tokens = FixedTokens(shape_.model, shape_.device);
  options.engine.streaming_step = shape_.streaming_step;
  options.engine.sender.self = {.prefill_address = address,
                                .prefill_incarnation = info.incarnation,
                                .module_digest = info.module_digest,
                                .layout = info.layout,
                                .numerics_id = info.numerics_id};
  options.reach = [this](const WorkerAddress& to) {
    const auto found = decodes_.find(to);
    return found == decodes_.end() ? nullptr : found->second.get();
  };
  SimulatedWorkerLink& link = LinkTo(address);
  options.started = [this, address, &link](const PrefillStarted& started) {
    link.SendToRouter("Started", started.request_id, false,
                      [this, address, started] { router_.OnStarted(address, started); });
  };
  options.done = [this, address, &link](PrefillDone done) {
    const RequestId id = done.request_id;
    link.SendToRouter("Done", id, true,
                      [this, address, done = std::move(done)] { router_.OnPrefillDone(address, done); });
  };
  options.failed = [this, address, &link](RequestFailed failed) {
    const RequestId id = failed.request_id;
    const std::string name = StrCat("Failed (", failed.status.ToString(), ")");
    link.SendToRouter(name, id, true,
                      [this, address, failed = std::move(failed)] { router_.OnFailed(address, failed); });
  };
  prefills_[address] = std::make_shared<SimulatedPrefill>(address, std::move(options), core_);
  SimulatedPrefill& worker = *prefills_[address];
  link.Start({.process = worker.process(),
              .introduce = [this, &worker, info] { return Introduction(worker, info); },
              .on_gone =
                  [&worker](SimulatedWorkerLink::Stream stream, const std::set<RequestId>& jobs) {
                    for (const RequestId& job : jobs) worker.Cancel(job);
                    worker.EndLeases(LeaseHolder(stream));
                  }});
}

template <typename Worker>
EventQueue::Event SimulatedCluster::Introduction(const Worker& worker, const WorkerInfo& info) {
  return [this, info, load = ToWorkerLoad(worker.engine().load(Now()), false)] {
    router_.Attach(info.address, info);
    if (shape_.load_reports) router_.OnLoad(info.address, load);
  };
}

void SimulatedCluster::StartDecode(const WorkerAddress& address, const Decoder& decoder) {
  WorkerInfo info = InfoOf(address, decoder.model, decoder.module, WorkerRole::kDecode);
  info.blocks_total = decoder.blocks.value_or(blocks_);
  SimulatedDecode::Options options{.engine = {},
                                   .model = shape_.model,
                                   .device = shape_.device,
                                   .weights = WeightsOf(decoder.makes_same_kv ? decoder.module : decoder.model),
                                   .step_time = decoder.pace};
  options.engine.handoff.module_digest = info.module_digest;
  options.engine.handoff.layout = info.layout;
  options.engine.handoff.numerics_id = info.numerics_id;
  options.engine.handoff.incarnation = info.incarnation;
  options.engine.handoff.transport_descriptor = StrCat(address, "#", info.incarnation.value());
  options.engine.model = {
      .tokenizer = &tokenizer_, .vocab = SimulatedBackend::kVocab, .eos_ids = {}, .positions = shape_.model.context};
  options.engine.blocks = info.blocks_total;
  options.engine.max_batch = info.max_batch;
  options.engine.shares_output = decoder.makes_same_kv;
  options.send = [this, address](DecodeEvents events) { SendEvents(address, std::move(events)); };
  decodes_[address] = std::make_shared<SimulatedDecode>(address, std::move(options), core_);
  SimulatedDecode& worker = *decodes_[address];
  LinkTo(address).Start({.process = worker.process(),
                         .introduce = [this, &worker, info] { return Introduction(worker, info); },
                         .on_gone =
                             [&worker](SimulatedWorkerLink::Stream stream, const std::set<RequestId>& jobs) {
                               for (const RequestId& job : jobs) worker.Cancel(job);
                               worker.Keep(RouterStream(stream), {});
                             }});
}

SimulatedWorkerLink& SimulatedCluster::LinkTo(const WorkerAddress& worker) {
  std::unique_ptr<SimulatedWorkerLink>& link = links_[worker];
  if (link == nullptr) {
    link = std::make_unique<SimulatedWorkerLink>(worker, router_process_, core_.network, core_.queue, [this, worker] {
      ++streams_lost_;
      router_.OnLost(worker);
    });
  }
  return *link;
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
    const MessageInfo message{kRouter, ran_.at(id).client, Way::kClient, "tokens", id};
    core_.network.SendSafely(message, [this, id, tokens = std::move(tokens)] {
      Ran& ran = NoteArrival(id);
      if (!tokens.empty()) ran.first = std::min(ran.first, Now());
      ran.tokens.insert(ran.tokens.end(), tokens.begin(), tokens.end());
      ran.late_tokens |= ran.ends > 0;
    });
  };
  outlets.end = [this](const RequestId& id, const RequestOutcome& outcome) {
    const std::string name = StrCat("end (", CodeAndMessage(outcome.status), ")");
    const MessageInfo message{kRouter, ran_.at(id).client, Way::kClient, name, id};
    core_.network.SendSafely(message, [this, id, outcome] {
      Ran& ran = NoteArrival(id);
      if (++ran.ends > 1) return;
      ran.ended = Now();
      ran.status = outcome.status;
      ran.prompt_tokens = outcome.prompt_tokens;
      ran.cached_tokens = outcome.cached_tokens;
      ran.times = outcome.times;
      ran.total = outcome.total;
      ran.resumed = outcome.resumed;
      ran.moved = outcome.moved;
      const auto live = live_.extract(id);
      if (live.mapped() != nullptr) live.mapped()();
    });
  };
  return outlets;
}

SimulatedCluster::Ran& SimulatedCluster::NoteArrival(const RequestId& id) {
  Ran& ran = ran_.at(id);
  ran.longest_gap = std::max(ran.longest_gap, Now() - ran.last_arrival);
  ran.last_arrival = Now();
  return ran;
}

void SimulatedCluster::Submit(size_t client, SimulatedRequest request, std::function<void()> ended) {
  const RequestId id = request.id;
  BATON_CHECK(!live_.contains(id), id);
  Ran& ran = ran_[id] = Ran();
  ran.client = absl::StrCat("client", client);
  ran.submitted = ran.last_arrival = Now();
  BeginReports();
  live_[id] = std::move(ended);
  core_.network.SendSafely(
      {ran.client, kRouter, Way::kClient, "request", id}, [this, request = std::move(request)]() mutable {
        router_process_.Run([this, request = std::move(request)]() mutable { router_.Submit(std::move(request)); });
      });
}

void SimulatedCluster::Cancel(const RequestId& id) {
  if (!live_.contains(id)) return;
  core_.network.SendSafely({ran_.at(id).client, kRouter, Way::kClient, "cancel", id},
                           [this, id] { router_process_.Run([this, id] { router_.Cancel(id); }); });
}

void SimulatedCluster::CancelWorkflow(const WorkflowKey& workflow) {
  router_process_.Run([this, workflow] { router_.CancelWorkflow(workflow); });
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
    ForEachLoad([this](const WorkerAddress& worker, WorkerLoad load) {
      load.commands = links_.at(worker)->commands();
      links_.at(worker)->SendToRouter("Load", [this, worker, load] { router_.OnLoad(worker, load); });
    });
    ReportAfterPeriod();
  });
}

void SimulatedCluster::ForEachLoad(absl::FunctionRef<void(const WorkerAddress&, const WorkerLoad&)> visit) {
  const auto visit_all = [&](auto& workers) {
    for (const auto& [address, worker] : workers) {
      if (!worker->process().stopped()) visit(address, ToWorkerLoad(worker->engine().load(Now()), false));
    }
  };
  visit_all(prefills_);
  visit_all(decodes_);
}

// Sends the events of each stream's jobs on that stream.
void SimulatedCluster::SendEvents(const WorkerAddress& worker, DecodeEvents events) {
  SimulatedWorkerLink& link = *links_.at(worker);
  for (auto& [stream, updates] : link.ByStream(std::move(events.updates))) {
    std::string names;  // for the trace
    for (const TokenUpdate& update : updates) {
      if (core_.trace.on()) names = StrCat(names, names.empty() ? "" : " ", update.request_id);
    }
    link.SendOnStream(stream, "Tokens", names, [this, worker, updates = std::move(updates)]() mutable {
      router_.OnUpdates(worker, std::move(updates));
    });
  }
  for (RequestFailed& failed : events.failures) {
    const RequestId id = failed.request_id;
    const std::string name = StrCat("Failed (", failed.status.ToString(), ")");
    link.SendToRouter(name, id, true, [this, worker, failed = std::move(failed)] { router_.OnFailed(worker, failed); });
  }
  if (events.room.empty()) return;
  link.SendToRouter("Room", [this, worker, room = events.room] { router_.OnRoom(worker, room); });
}

void SimulatedCluster::Command(WorkerCommand command) {
  const WorkerAddress worker = command.worker;
  SimulatedWorkerLink& link = *links_.at(worker);
  std::visit(
      [&](auto& job) {
        using Job = std::decay_t<decltype(job)>;
        const RequestId id = job.request_id;
        link.SendToWorker(NameOf(job), id, std::is_same_v<Job, PrefillJob> || std::is_same_v<Job, DecodeJob>,
                          [this, worker, stream = link.newest(), job = std::move(job)]() mutable {
                            if constexpr (std::is_same_v<Job, KeepRoom>) {
                              decodes_.at(worker)->Keep(RouterStream(stream), std::move(job));
                            } else {
                              Do(worker, std::move(job));
                            }
                          });
      },
      command.what);
}

void SimulatedCluster::Do(const WorkerAddress& worker, PrefillJob job) {
  job.lease_holder = LeaseHolder(links_.at(worker)->StreamOf(job.request_id));
  prefills_.at(worker)->Submit(std::move(job));
}

void SimulatedCluster::Do(const WorkerAddress& worker, const CancelJob& cancel) {
  const auto prefill = prefills_.find(worker);
  if (prefill != prefills_.end()) return prefill->second->Cancel(cancel.request_id);
  decodes_.at(worker)->Cancel(cancel.request_id);
}

// --- Faults ----------------------------------------------------------------

SimulatedProcess* SimulatedCluster::ProcessOf(const WorkerAddress& worker) const {
  const auto prefill = prefills_.find(worker);
  if (prefill != prefills_.end()) return &prefill->second->process();
  const auto decode = decodes_.find(worker);
  return decode == decodes_.end() ? nullptr : &decode->second->process();
}

void SimulatedCluster::Kill(const WorkerAddress& worker) {
  SimulatedProcess* const process = ProcessOf(worker);
  if (process == nullptr) return;
  process->End();
  if (const auto prefill = prefills_.extract(worker)) ended_.push_back(prefill.mapped());
  if (const auto decode = decodes_.extract(worker)) ended_.push_back(decode.mapped());
  links_.at(worker)->OnWorkerEnded();
}

void SimulatedCluster::Restart(const WorkerAddress& worker) {
  if (ProcessOf(worker) == nullptr) starts_.at(worker)();
}

void SimulatedCluster::Begin(const Fault& fault) {
  if (core_.trace.on()) core_.trace.Add(StrCat("*** ", ToString(fault)));
  core_.faults.Begin(fault);
  const absl::Time until = Now() + fault.lasts;
  const auto prefill = prefills_.find(fault.target);
  switch (fault.kind) {
    case FaultKind::kKill:
      Kill(fault.target);
      return core_.queue.At(until, [this, target = fault.target] { Restart(target); });
    case FaultKind::kSilence:
      if (SimulatedProcess* process = ProcessOf(fault.target)) process->StopUntil(until);
      return;
    case FaultKind::kClockStep:
      return router_process_.StopUntil(until);
    case FaultKind::kDiskFull:
      if (prefill != prefills_.end()) prefill->second->disk().FillUntil(until);
      return;
    case FaultKind::kDiskError:
      if (prefill != prefills_.end()) prefill->second->disk().FailNext();
      return;
    case FaultKind::kPartition:
    case FaultKind::kSlowLink:
    case FaultKind::kMessages:
      return;  // the injector decides about each message
  }
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
  if (router_process_.stopped()) return;  // armed again when it goes on
  timer_.By(core_.queue, router_.NextTick(), [this] { router_process_.Run([this] { router_.Tick(); }); });
}

int64_t SimulatedCluster::Preemptions() const {
  int64_t preemptions = 0;
  for (const auto& [address, worker] : decodes_) preemptions += worker->engine().load(Now()).preemptions;
  return preemptions;
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

SimulatedCluster::Holdings SimulatedCluster::Held() const {
  router_.CheckInvariants();
  Holdings held{.router_requests = router_.core().live_requests(), .waiting_requests = router_.core().waiting().size()};
  for (const auto& [link, worker] : router_.core().registry().workers()) {
    held.assignments += std::ssize(worker.requests) + std::ssize(worker.expected);
  }
  const auto count = [&](const BlockPool::Counts& counts) {
    held.blocks += counts.referenced;
    held.quarantined += counts.quarantined;
  };
  for (const auto& [address, worker] : prefills_) {
    worker->engine().CheckInvariants();
    held.prefill_requests += worker->engine().load().requests;
    count(worker->engine().load().blocks);
  }
  for (const auto& [address, worker] : decodes_) {
    worker->engine().CheckInvariants();
    const DecodeEngine::Load load = worker->engine().load();
    held.decode_requests += load.running + load.reserved + load.committed;
    count(load.blocks);
  }
  return held;
}

}  // namespace baton
