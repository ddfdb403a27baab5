#include "simulator/fault_case.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backend/simulated/shapes.h"
#include "world/dice.h"

namespace baton {
namespace {

class CaseDrawer {
 public:
  explicit CaseDrawer(uint64_t seed) : dice_(seed), seed_(seed) {}

  FaultCase Draw() {
    DrawShape();
    const int requests = dice_.Uniform(5, 20);
    for (int i = 0; i < requests; ++i) DrawRequest(i);
    const int faults = dice_.Uniform(1, 4);
    for (int i = 0; i < faults; ++i) DrawFault();
    return std::move(case_);
  }

 private:
  template <typename T>
  T OneOf(std::initializer_list<T> all) {
    return all.begin()[dice_.Below(std::ssize(all))];
  }
  absl::Duration Within(absl::Duration most) { return most * (dice_.Uniform(0, 1'000'000) / 1e6); }

  void DrawShape() {
    ClusterShape& shape = case_.shape;
    shape.model = *ModelNamed("smollm2-135m");
    shape.model.layers = 2;
    shape.model.context = 1024;
    shape.device = *DeviceNamed("a100");
    shape.device.step_overhead = absl::Milliseconds(2) + Within(absl::Milliseconds(30));
    shape.step_tokens = OneOf<int64_t>({32, 64, 128, 512});
    shape.blocks = OneOf<int64_t>({40, 64, 96, 512});
    shape.network.seed = seed_;
    shape.network.push = Within(absl::Milliseconds(2));
    shape.prefill_workers = dice_.Uniform(1, 3);
    shape.decode_workers = dice_.Uniform(1, 3);
    if (dice_.Chance(0.3)) shape.host_blocks = OneOf<int64_t>({8, 32});
    if (shape.host_blocks > 0) shape.disk_blocks = OneOf<int64_t>({0, 64, 64});
    if (dice_.Chance(0.2)) shape.sessions = SessionLimits{.sessions = dice_.Uniform(1, 3)};
    if (dice_.Chance(0.3)) shape.shortest_first.emplace();
  }

  // Texts of few kinds, so that prompts share prefixes.
  std::vector<TokenId> Text() {
    std::mt19937 text(static_cast<uint32_t>(dice_.Below(4)));
    std::vector<TokenId> ids(OneOf<size_t>({1, 7, 16, 40, 64, 160}));
    for (TokenId& id : ids) id = static_cast<TokenId>(text() % SimulatedBackend::kVocab);
    return ids;
  }

  void DrawRequest(int number) {
    FaultCase::Submission& drawn = case_.submissions.emplace_back();
    drawn.at = Within(absl::Seconds(2));
    SimulatedRequest& request = drawn.request;
    request.id = absl::StrCat("r", number);
    request.model = SimulatedCluster::kModel;
    request.tenant = request.cache_domain = OneOf({"", "a", "b"});
    if (dice_.Chance(0.4)) request.session = OneOf({"s", "t", "u"});
    request.max_tokens = dice_.Uniform(1, 40);
    if (dice_.Chance(0.5)) request.temperature = 1;
    request.seed = static_cast<uint64_t>(dice_.Below(1000));
    if (dice_.Chance(0.2)) DrawStop(request);
    request.segments.emplace_back(Text());
    if (number > 0 && dice_.Chance(0.3)) {
      const FaultCase::Submission& upstream = case_.submissions[static_cast<size_t>(dice_.Below(number))];
      request.cache_domain = request.tenant = upstream.request.cache_domain;
      request.segments.emplace_back(Reference{.upstream = upstream.request.id, .announced = true});
      request.segments.emplace_back(Text());
    }
    request.scores = request.segments.size() == 1 && number % 5 == 0;
    if (dice_.Chance(0.1)) drawn.cancel_at = drawn.at + Within(absl::Seconds(1));
  }

  // 40 strings of two letters. One of them occurs now and then, split over two tokens.
  void DrawStop(SimulatedRequest& request) {
    request.stop.resize(40);
    for (std::string& text : request.stop) {
      for (int i = 0; i < 2; ++i) text += static_cast<char>('0' + dice_.Below(64));
    }
  }

  WorkerAddress Prefill() { return absl::StrCat("prefill", dice_.Below(case_.shape.prefill_workers)); }
  WorkerAddress Decode() { return absl::StrCat("decode", dice_.Below(case_.shape.decode_workers)); }
  WorkerAddress Worker() { return dice_.Chance(0.5) ? Prefill() : Decode(); }

  void DrawFault() {
    FaultCase::TimedFault& drawn = case_.faults.emplace_back();
    drawn.at = Within(absl::Seconds(2));
    Fault& fault = drawn.fault;
    const FaultRow& row = kFaultTable[dice_.Below(std::ssize(kFaultTable))];
    fault.kind = row.value;
    fault.lasts = Within(OneOf({absl::Milliseconds(300), absl::Seconds(2), absl::Seconds(6), absl::Seconds(60)}));
    switch (row.target) {
      case FaultTarget::kWorker:
        fault.target = Worker();
        break;
      case FaultTarget::kPrefill:
        fault.target = Prefill();
        break;
      case FaultTarget::kLink:
        DrawLink(fault);
        if (fault.kind == FaultKind::kSlowLink) fault.factor = OneOf({10., 100., 3000.});
        break;
      case FaultTarget::kRouter:
        fault.target = "router";
        break;
      case FaultTarget::kCluster:
        break;
    }
  }

  void DrawLink(Fault& fault) {
    if (dice_.Chance(0.5)) {
      std::tie(fault.target, fault.peer) = std::pair(Prefill(), Decode());
    } else {
      std::tie(fault.target, fault.peer) = std::pair(Worker(), WorkerAddress("router"));
    }
    if (dice_.Chance(0.5)) std::swap(fault.target, fault.peer);
  }

  Dice<std::mt19937_64> dice_;
  const uint64_t seed_;
  FaultCase case_;
};

std::vector<RequestId> UpstreamsOf(const SimulatedRequest& request) {
  std::vector<RequestId> upstreams;
  for (const PromptSegment& segment : request.segments) {
    if (const auto* reference = std::get_if<Reference>(&segment)) upstreams.push_back(reference->upstream);
  }
  return upstreams;
}

}  // namespace

FaultCase DrawFaultCase(uint64_t seed) { return CaseDrawer(seed).Draw(); }

History Play(const FaultCase& drawn, bool disturbed, std::ostream* trace) {
  const std::unique_ptr<SimulatedCluster> cluster = *SimulatedCluster::Create(drawn.shape);
  if (trace != nullptr) cluster->trace().Begin(*trace);
  History history;
  for (const FaultCase::Submission& one : drawn.submissions) {
    cluster->After(one.at, [&] { cluster->Submit(0, one.request, nullptr); });
    ClientHistory& client = history.requests[one.request.id];
    client.upstreams = UpstreamsOf(one.request);
    client.cancelled = disturbed && one.cancel_at.has_value();
    if (client.cancelled) cluster->After(*one.cancel_at, [&] { cluster->Cancel(one.request.id); });
  }
  const absl::Time start = cluster->Now();
  for (const FaultCase::TimedFault& one : drawn.faults) {
    if (!disturbed) break;
    cluster->After(one.at, [&] { cluster->Begin(one.fault); });
    history.disturbed_from = std::min(history.disturbed_from, start + one.at);
    history.quiet_from = std::max(history.quiet_from, start + one.at + one.fault.lasts);
  }
  cluster->RunUntilIdle();
  if (disturbed) {
    // Leases, quarantines, sessions and outputs end after the faults.
    cluster->RunFor(std::max(history.quiet_from - cluster->Now(), absl::ZeroDuration()) + absl::Minutes(3));
    history.held = cluster->Held();
    history.sessions = cluster->router().sessions();
  }
  history.breaks = cluster->StreamsLost();
  for (auto& [id, client] : history.requests) {
    const SimulatedCluster::Ran& ran = cluster->ran(id);
    client.submitted = ran.submitted;
    client.ends = ran.ends;
    client.late_tokens = ran.late_tokens;
    client.ended = ran.ended;
    client.status = ran.status;
    client.tokens = ran.tokens;
  }
  return history;
}

}  // namespace baton
