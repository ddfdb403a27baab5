// The prefill engine and the hand-off under seeded faults.
#include <algorithm>
#include <random>
#include <set>

#include "catch.h"
#include "engine/prefill/engine.h"
#include "seeds.h"
#include "world/dice.h"
#include "world/prefill_world.h"
#include "world/random_run.h"

namespace baton {
namespace {

// A cluster under faults. Two decode workers start and stop. Messages arrive in any order, and some
// are lost.
class Chaos {
 public:
  explicit Chaos(uint64_t seed)
      : dice_(seed),
        world_(
            {.blocks = 12 + Below(40),
             .step_tokens = 16 + Below(64),
             .least_ahead = 1 + Below(3),
             .sender = {.self = {}, .forget_idle = absl::Seconds(15)}},
            [this](Envelope e) { mail_.Post(std::move(e)); }, [](const std::string&) {}) {
    world_.verify = Below(2) == 0;
    for (const char* d : {"d0", "d1"}) world_.AddDecode(d, 8 + Below(30));
  }

  bool Event() {
    world_.lease = {.tokens = static_cast<int32_t>(std::max<int64_t>(0, Below(200) - 100)),
                    .duration = absl::Seconds(Below(10))};
    world_.lease_holder = LeaseHolder(static_cast<uint64_t>(Below(3)));
    switch (Below(12)) {
      case 11:
        if (Below(20) == 0) world_.engine().EndLeases(LeaseHolder(1));
        break;
      case 0:
        Submit();
        break;
      case 10:
        if (!open_.empty()) AppendToOne(Below(3) == 0);
        break;
      case 1:
        CancelOne();
        break;
      case 2:
      case 3:
        if (!world_.running()) world_.Begin();
        break;
      case 4:
      case 5:
        if (world_.running()) EndStep();
        break;
      case 6:
        world_.Advance(absl::Milliseconds(Below(Below(20) == 0 ? 20000 : 100)));
        break;
      case 7:
        if (Below(50) == 0) Restart();
        break;
      default:
        DeliverOne(Below(20) != 0);
    }
    CheckTokens();
    return ++events_ < 400;
  }
  void CheckInvariants() { world_.CheckInvariants(); }

  void Settle() {
    while (!open_.empty()) AppendToOne(true);
    for (int i = 0; i < 4000 && !world_.engine().idle(); ++i) {
      while (!mail_.empty()) DeliverOne(true);
      if (world_.running()) {
        world_.End();
      } else if (!world_.Begin()) {
        world_.Advance(absl::Milliseconds(50));
      }
      world_.CheckInvariants();
      CheckTokens();
    }
    REQUIRE(world_.engine().idle());
    const PrefillLoad load = world_.engine().load();
    CHECK(load.blocks.referenced == load.leased_blocks);
    CHECK(load.leased_blocks <= load.blocks.total / 2);
    // All requests have ended, so each computed token is counted. A failed step may have been
    // counted for requests that ended during the step.
    const PrefillTotals& totals = load.totals;
    const int64_t computed =
        totals.tokens.computed + totals.low_priority.computed + totals.tokens.dropped + totals.low_priority.dropped;
    CHECK(computed >= world_.backend().tokens_computed());
    CHECK(computed <= world_.tokens_planned());
    CHECK(totals.wasted_tokens + totals.refused_tokens <= totals.tokens.computed + totals.tokens.dropped);
    for (const auto& [id, request] : world_.requests()) {
      INFO(id);
      CHECK(request.done.has_value() != request.failed.has_value());
    }
    world_.Advance(absl::Minutes(5));  // leases end
    CHECK(world_.engine().load().blocks.referenced == 0);
    world_.Advance(absl::Minutes(5));  // quarantines end
  }
  std::vector<BlockPool::Counts> Pools() {
    std::vector<BlockPool::Counts> pools{world_.engine().load().blocks};
    for (auto& [address, decode] : world_.decodes()) pools.push_back(decode->worker.pool().counts());
    return pools;
  }
  int64_t right_tokens() const { return right_tokens_; }

 private:
  int64_t Below(int64_t limit) { return dice_.Below(limit); }

  void Submit() {
    std::vector<TokenId> prompt(static_cast<size_t>(1 + Below(120)));
    TokenId branch = 0;
    for (size_t i = 0; i < prompt.size(); ++i) {
      if (i % 24 == 0) branch = static_cast<TokenId>(Below(2));
      prompt[i] = branch;
    }
    const RequestId id = absl::StrCat("r", ++submitted_);
    const int32_t priority = Below(6) == 0 ? kLowPriority : static_cast<int32_t>(Below(3));
    // Low-priority jobs have no hand-off.
    const WorkerAddress to = IsLowPriority(priority) ? "" : AnyDecode();
    if (Below(2) == 0) return world_.Submit(id, prompt, to, priority);
    const auto known = prompt.begin() + Below(std::ssize(prompt) + 1);
    open_[id] = {known, prompt.end()};
    world_.Open(id, {prompt.begin(), known}, priority, to);
  }
  WorkerAddress AnyDecode() {
    const char* to[] = {"d0", "d1", ""};
    return to[Below(3)];
  }
  // Appends the next increment to a streaming prompt. `last`: appends the rest and closes the
  // prompt.
  void AppendToOne(bool last) {
    const auto it = std::next(open_.begin(), Below(std::ssize(open_)));
    const auto& [id, rest] = *it;
    const auto end = last ? rest.end() : rest.begin() + Below(std::ssize(rest) + 1);
    const std::vector<TokenId> tokens(rest.begin(), end);
    const std::vector<TokenId> left(end, rest.end());
    const WorkerAddress to = last && !world_.requests().at(id).low_priority ? AnyDecode() : "";
    world_.Append(id, tokens, last, to, !tokens.empty() && Below(8) == 0);
    if (last) {
      open_.erase(it);
    } else {
      it->second = left;
    }
  }
  void CancelOne() {
    auto& requests = world_.requests();
    if (requests.empty() || Below(3) != 0) return;
    world_.Cancel(std::next(requests.begin(), Below(static_cast<int64_t>(requests.size())))->first);
  }
  void EndStep() {
    if (Below(15) == 0) {
      world_.End(Below(FakeBackend::Layout().layers + 1));
    } else {
      world_.End();
    }
  }
  void Restart() {
    const WorkerAddress address = Below(2) == 0 ? "d0" : "d1";
    world_.KillDecode(address);
    if (Below(3) != 0) world_.AddDecode(address, 8 + Below(30));
  }
  void DeliverOne(bool arrives) {
    if (mail_.empty()) return;
    const Envelope envelope = mail_.Take(static_cast<size_t>(Below(std::ssize(mail_.in_flight()))));
    arrives ? envelope.arrive() : envelope.lose();
  }
  // Checks that each request that is done gives the right token, unless the decode worker refuses
  // the request.
  void CheckTokens() {
    for (auto& [id, request] : world_.requests()) {
      if (!request.done || request.to.empty() || !started_.insert(id).second) continue;
      const auto token = world_.FirstToken(id);
      if (!token.ok()) continue;
      INFO(id);
      REQUIRE(*token == FakeBackend::NextToken(request.prompt));
      ++right_tokens_;
    }
  }

  Dice<std::mt19937> dice_;
  Mail mail_;
  PrefillWorld world_;
  int events_ = 0;
  int submitted_ = 0;
  std::map<RequestId, std::vector<TokenId>> open_;  // the tokens that are not appended yet
  std::set<RequestId> started_;
  int64_t right_tokens_ = 0;
};

TEST_CASE("Tokens are right and blocks are freed when messages are lost and workers die") {
  int64_t right_tokens = 0;
  const Seeds seeds = ForEachWorld<Chaos>(60, [&](Chaos& chaos) { right_tokens += chaos.right_tokens(); });
  if (seeds.all()) CHECK(right_tokens > 0);
}

// Submits prompts that are refused again until they are done, as a router does. The pools of both
// sides are small, so a request that waited with blocks would block the other requests.
void SendUntilThrough(uint64_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned limit) { return static_cast<int>(random() % limit); };
  Mail mail;
  PrefillWorld world(
      {.blocks = 6 + below(6), .step_tokens = 16 + below(64), .sender = {}},
      [&](Envelope e) { mail.Post(std::move(e)); }, [](const std::string&) {});
  for (const char* d : {"d0", "d1"}) world.AddDecode(d, 6 + below(4));
  std::map<RequestId, PrefillWorld::Request> left;
  for (int i = 0; i < 30; ++i) {
    // The first token never needs another block, because the fake decode worker reserves no room
    // for growth.
    std::vector<TokenId> prompt(static_cast<size_t>(2 + below(15) + 16 * below(5)), static_cast<TokenId>(below(3)));
    left[absl::StrCat("r", i)] = {std::move(prompt), below(3) == 0 ? "d1" : "d0", std::nullopt, std::nullopt};
  }
  for (const auto& [id, request] : left) world.Submit(id, request.prompt, request.to);
  for (int round = 0; round < 500 && !left.empty(); ++round) {
    mail.DeliverAll();
    if (world.running()) world.End();
    world.Begin();
    world.CheckInvariants();
    for (auto it = left.begin(); it != left.end();) {
      const PrefillWorld::Request& request = world.requests().at(it->first);
      if (request.done && below(3) == 0) {  // decode it, which frees its blocks there
        const auto token = world.FirstToken(it->first);
        REQUIRE(token.ok());
        REQUIRE(*token == FakeBackend::NextToken(it->second.prompt));
        it = left.erase(it);
        continue;
      }
      if (request.failed) {
        REQUIRE(absl::IsResourceExhausted(request.failed->status));
        REQUIRE(request.failed->no_room_to_decode);
        world.Submit(it->first, it->second.prompt, it->second.to);
      }
      ++it;
    }
  }
  CHECK(left.empty());
}

TEST_CASE("All prompts complete when they are sent again while decode workers are full") {
  ForEachSeed(50, SendUntilThrough);
}

}  // namespace
}  // namespace baton
