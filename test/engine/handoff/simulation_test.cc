// Random tests of senders and receivers over a simulated network, on a virtual clock. A seed
// replays a run.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/logging.h"
#include "catch.h"
#include "world/dice.h"
#include "world/handoff_world.h"
#include "world/random_run.h"
#include "world/timeline.h"

namespace baton {
namespace {

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : dice_(seed),
        world_(
            timeline_.clock(), kLease, [this](auto e) { Post(std::move(e)); },
            [this](const auto& line) { Trace(line); }) {
    loss_ = Chance(0.3) ? 0 : Uniform(0, 20) / 100.0;
    duplication_ = Chance(0.5) ? 0 : Uniform(0, 20) / 100.0;
    slow_ = Chance(0.5) ? 0 : Uniform(0, 10) / 100.0;
    // Senders that wait for answers without a limit reach the ends of leases.
    if (Chance(0.5)) world_.SetAnswerWithin(absl::InfiniteDuration());
    for (int i = 0; i < Uniform(1, 2); ++i) world_.StartPrefill(absl::StrCat("p", i));
    verify_ = Chance(0.5);
    guard_ = Chance(0.5);
    world_.SetLocal(Chance(0.5));
    for (int i = 0; i < Uniform(1, 2); ++i) {
      world_.StartDecode(absl::StrCat("d", i), decode_blocks_ = Uniform(6, 20), {}, verify_, guard_);
    }
    const int requests = Uniform(1, 12);
    for (int i = 0; i < requests; ++i) At(Uniform(0, 40'000), [this, i] { BeginRequest(i); });
    for (int i = Uniform(0, 3); i > 0; --i) At(Uniform(0, 60'000), [this] { Disturb(); });
  }

  bool Event() { return RunOne(absl::UnixEpoch() + absl::Seconds(150)); }
  void CheckInvariants() { world_.CheckInvariants(); }
  void Settle() {
    // From now on no message is lost, so each request must end.
    loss_ = duplication_ = slow_ = 0;
    while (RunOne(absl::UnixEpoch() + absl::Seconds(600))) {
    }
    CheckTheEnd();
  }
  std::vector<BlockPool::Counts> Pools() {
    std::vector<BlockPool::Counts> pools;
    for (auto& [address, d] : world_.decodes()) {
      if (d.pool != nullptr) pools.push_back(d.pool->counts());
    }
    return pools;
  }

 private:
  static constexpr absl::Duration kLease = absl::Seconds(4);

  // Prints the line if BATON_SEED is set.
  void Trace(const std::string& line) {
    if (std::getenv("BATON_SEED") == nullptr) return;
    std::fprintf(stderr, "%8.3f %s\n", absl::ToDoubleSeconds(Now() - absl::UnixEpoch()), line.c_str());
  }
  int Uniform(int low, int high) { return dice_.Uniform(low, high); }
  bool Chance(double p) { return dice_.Chance(p); }
  absl::Time Now() const { return timeline_.Now(); }
  void At(int milliseconds, std::function<void()> event) {
    timeline_.After(absl::Milliseconds(milliseconds), std::move(event));
  }
  bool RunOne(absl::Time until) {
    return timeline_.RunOne(
        until, [this] { TickAll(); }, [this] { return AllIdle(); });
  }

  // Returns a delay, mostly short, sometimes so long that leases end. No push is in flight for
  // longer than the quarantine.
  int Delay(int slowest) { return Chance(slow_) ? Uniform(1'000, slowest) : Uniform(1, 50); }

  void Post(Envelope envelope) {
    envelope.arrive = [this, text = envelope.text, arrive = std::move(envelope.arrive)] {
      Trace(text);
      arrive();
    };
    // Only messages are doubled and cut off. The transport reports the end of a push exactly once.
    const bool push = envelope.text.find("push") != std::string::npos;
    const bool message = !push && envelope.text.find("→") != std::string::npos;
    const bool cut = message && Now() < cut_until_ && envelope.text.find(cut_) != std::string::npos;
    const int slowest = push ? 8'000 : 25'000;
    if (envelope.lose != nullptr && (cut || Chance(loss_))) {
      Trace(absl::StrCat("LOST ", envelope.text));
      At(Delay(slowest), std::move(envelope.lose));
      return;
    }
    if (message && Chance(duplication_)) At(Delay(slowest), envelope.arrive);
    At(Delay(slowest), std::move(envelope.arrive));
  }

  HandoffWorld::Prefill& AnyPrefill() {
    return world_.prefill(absl::StrCat("p", Uniform(0, static_cast<int>(world_.prefills().size()) - 1)));
  }
  HandoffWorld::Decode& AnyDecode() {
    return world_.decode(absl::StrCat("d", Uniform(0, static_cast<int>(world_.decodes().size()) - 1)));
  }

  struct Request {
    RequestId id;
    WorkerAddress prefill;
    Incarnation prefill_incarnation;
    WorkerAddress decode;
    std::vector<TokenId> prompt;
    bool claimed_or_gone = false;
    bool forged = false;  // a block was overwritten before Start
  };

  void BeginRequest(int number) {
    HandoffWorld::Prefill& p = AnyPrefill();
    if (p.sender == nullptr) return;
    const RequestId id = absl::StrCat("r", number);
    const int tokens = Uniform(1, 80);
    Request& request = requests_[id];
    request = {id, p.address, p.incarnation, AnyDecode().address,
               HandoffWorld::Prompt(tokens, Uniform(0, 1), Uniform(0, 4) * 16, number)};
    world_.Begin(p, request.decode, id, request.prompt, Uniform(0, 40));
    Compute(id, 0, 0);
    if (Chance(0.2)) At(Uniform(0, 20'000), [this, id] { CancelSomewhere(id); });
    At(50, [this, id] { Follow(id); });
  }

  // Computes the prompt chunk by chunk, and the last chunk layer by layer.
  void Compute(const RequestId& id, int32_t begin, int64_t layers) {
    const Request& request = requests_.at(id);
    HandoffWorld::Prefill& p = world_.prefill(request.prefill);
    if (p.sender == nullptr || p.incarnation != request.prefill_incarnation) return;
    const auto blocks = static_cast<int32_t>(BlocksFor(static_cast<int64_t>(request.prompt.size()) - 1));
    if (begin >= blocks) return;
    const int32_t end = std::min(blocks, begin + Uniform(1, 3));
    const int64_t ready = end < blocks ? HandoffWorld::kLayout.layers : layers + 1;
    if (ready == HandoffWorld::kLayout.layers || end == blocks) world_.BlocksReady(p, id, begin, end, ready);
    const bool whole = ready == HandoffWorld::kLayout.layers;
    if (!whole) {
      // Computes the other layers of the same chunk.
      At(ComputeTime(), [this, id, begin, end] {
        const Request& r = requests_.at(id);
        HandoffWorld::Prefill& worker = world_.prefill(r.prefill);
        if (worker.sender == nullptr || worker.incarnation != r.prefill_incarnation) return;
        world_.BlocksReady(worker, id, begin, end, HandoffWorld::kLayout.layers);
      });
      return;
    }
    At(ComputeTime(), [this, id, end] { Compute(id, end, 0); });
  }
  int ComputeTime() { return Chance(0.05) ? Uniform(1'000, 60'000) : Uniform(1, 500); }

  // Acts as the router: starts a committed request, sometimes late, twice or never.
  void Follow(const RequestId& id) {
    const HandoffWorld::Outcome& outcome = world_.outcomes()[id];
    if (!outcome.committed.has_value()) {
      if (!outcome.failed.has_value()) At(100, [this, id] { Follow(id); });
      return;
    }
    if (Chance(0.1)) return;
    At(Chance(0.1) ? Uniform(5'000, 15'000) : Uniform(1, 50), [this, id] { StartDecoding(id); });
    if (Chance(0.1)) At(Uniform(1, 200), [this, id] { StartDecoding(id); });
  }

  void StartDecoding(const RequestId& id) {
    Request& request = requests_.at(id);
    HandoffWorld::Decode& d = world_.decode(request.decode);
    if (d.receiver == nullptr) return;
    const DecodeJob job = world_.JobOf(id, request.prompt);
    // Forges no block after the claim, because blocks are checked only before they are used.
    if (verify_ && !request.claimed_or_gone && Chance(0.2)) request.forged = world_.ForgeOneOf(d, job.reservation);
    if (!world_.Start(d, job).ok()) return;
    BATON_CHECK(!request.claimed_or_gone, "claimed twice");
    request.claimed_or_gone = true;
    ++started_;
    At(Uniform(10, 5'000), [this, &d, id, incarnation = d.incarnation] { FinishDecoding(d, id, incarnation); });
  }

  void FinishDecoding(HandoffWorld::Decode& d, const RequestId& id, Incarnation incarnation) {
    if (d.receiver == nullptr || d.incarnation != incarnation) return;
    const bool checking =
        std::ranges::any_of(d.checking, [&](const auto& entry) { return entry.second.request_id == id; });
    if (checking) {
      At(100, [this, &d, id, incarnation] { FinishDecoding(d, id, incarnation); });
    } else {
      d.running.erase(id);
    }
  }

  void CancelSomewhere(const RequestId& id) {
    const Request& request = requests_.at(id);
    HandoffWorld::Prefill& p = world_.prefill(request.prefill);
    HandoffWorld::Decode& d = world_.decode(request.decode);
    if (Chance(0.7) && p.sender != nullptr && p.incarnation == request.prefill_incarnation) {
      world_.CancelPrefill(p, id);
    }
    if (Chance(0.7) && d.receiver != nullptr) {
      d.receiver->Cancel(id, Now());
      d.receiver->CheckInvariants();
    }
  }

  void Disturb() {
    const int downtime = Uniform(1, 30'000);
    HandoffWorld::Prefill& p = AnyPrefill();
    HandoffWorld::Decode& d = AnyDecode();
    switch (Uniform(0, 4)) {
      case 0:
        world_.KillPrefill(p.address);
        if (Chance(0.7)) {
          At(Uniform(0, 2'000), [this, process = HandoffWorld::ProcessOf(p)] { world_.ReportProcessEnd(process); });
        }
        At(downtime, [this, &p] { world_.StartPrefill(p.address); });
        break;
      case 1:
        world_.KillDecode(d.address);
        At(downtime, [this, &d] { world_.StartDecode(d.address, decode_blocks_, {}, verify_, guard_); });
        break;
      case 2:  // control messages are lost both ways, while blocks still move
        cut_ = p.address;
        cut_until_ = Now() + 3 * absl::Milliseconds(downtime);
        break;
      default:  // a paused process runs its ticks after the pause
        paused_until_ = Now() + absl::Milliseconds(downtime);
        paused_ = Chance(0.5) ? p.address : d.address;
        break;
    }
  }

  // The ticks of a paused worker are late. Messages still arrive, as delays of the network cover
  // them.
  void TickAll() {
    const auto runs = [this](const WorkerAddress& address) { return address != paused_ || Now() >= paused_until_; };
    for (auto& [address, p] : world_.prefills()) {
      if (runs(address)) world_.TickPrefill(p);
    }
    for (auto& [address, d] : world_.decodes()) {
      if (runs(address)) world_.TickDecode(d);
    }
  }

  bool AllIdle() {
    for (auto& [address, p] : world_.prefills()) {
      if (p.sender != nullptr && !p.sender->idle()) return false;
    }
    for (auto& [address, d] : world_.decodes()) {
      if (d.receiver != nullptr && d.receiver->NextTick() != absl::InfiniteFuture()) return false;
    }
    return true;
  }

  void CheckTheEnd() {
    for (const auto& [id, request] : requests_) {
      const HandoffWorld::Prefill& p = world_.prefill(request.prefill);
      if (p.incarnation != request.prefill_incarnation) continue;  // its process has died
      const HandoffWorld::Outcome& outcome = world_.outcomes()[id];
      BATON_CHECK(outcome.committed.has_value() || outcome.failed.has_value(), "a request did not end");
      BATON_CHECK(!outcome.refused || request.forged, "KV that was not forged was refused");
      refused_ += outcome.refused;
    }
    for (auto& [address, p] : world_.prefills()) {
      if (p.sender == nullptr) continue;
      BATON_CHECK(p.sender->idle(), "a sender still has work");
    }
    for (auto& [address, d] : world_.decodes()) {
      if (d.receiver == nullptr) continue;
      BATON_CHECK(d.checking.empty(), "a check did not end");
    }
  }

 public:
  int started() const { return started_; }
  int refused() const { return refused_; }
  int refused_writes() const { return world_.refused_writes(); }
  int failed() { return static_cast<int>(requests_.size()) - started_; }

 private:
  Dice<std::mt19937_64> dice_;
  Timeline timeline_{absl::Milliseconds(200)};
  double loss_ = 0;
  double duplication_ = 0;
  double slow_ = 0;
  int decode_blocks_ = 0;
  bool verify_ = false;
  bool guard_ = false;
  int refused_ = 0;
  HandoffWorld world_;
  std::map<RequestId, Request> requests_;
  WorkerAddress cut_;
  absl::Time cut_until_ = absl::UnixEpoch();
  WorkerAddress paused_;
  absl::Time paused_until_ = absl::UnixEpoch();
  int started_ = 0;
};

TEST_CASE("Hand-offs end and free their blocks under random faults", "[one_thread]") {
  spdlog::set_level(spdlog::level::off);
  int started = 0;
  int failed = 0;
  int refused = 0;
  int refused_writes = 0;
  const Seeds seeds = ForEachWorld<Simulation>(2'500, [&](Simulation& simulation) {
    started += simulation.started();
    failed += simulation.failed();
    refused += simulation.refused();
    refused_writes += simulation.refused_writes();
  });
  spdlog::set_level(spdlog::level::info);
  INFO("started " << started << ", not started " << failed << ", refused since they were forged " << refused
                  << ", writes that came too late " << refused_writes);
  if (seeds.all()) {  // each case occurs often
    CHECK(started > 5'000);
    CHECK(failed > 1'000);
    CHECK(refused > 200);
    CHECK(refused_writes > 20);
  }
}

}  // namespace
}  // namespace baton
