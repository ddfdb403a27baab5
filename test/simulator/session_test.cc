#include "simulator/session.h"

#include "backend/simulated/shapes.h"
#include "catch.h"

namespace baton {
namespace {

const std::vector<std::string> kAgents = {"planner", "searcher", "critic", "writer"};
constexpr int64_t kTurns = 12;

ClusterShape SessionShape(const std::string& first_decoder = kAgents.front()) {
  ClusterShape shape;
  shape.model = *ModelNamed("llama-3.1-8b");
  shape.device = *DeviceNamed("a100");
  shape.groups = {{.module = "base", .prefill_workers = 2, .decoders = kAgents}};
  shape.groups.front().decoders.front() = first_decoder;
  return shape;
}

// Sessions of one conversation each. A different agent has each turn.
std::vector<Session> Sessions(int count, const std::vector<std::string>& agents = kAgents) {
  std::vector<Session> sessions(count);
  for (int s = 0; s < count; ++s) {
    for (int64_t t = 0; t < kTurns; ++t) {
      const std::string name = "session " + std::to_string(s) + " turn " + std::to_string(t);
      sessions[s].push_back({.model = agents[t % agents.size()], .added = {{name, 200 + 7 * t}}, .output = 50});
    }
  }
  return sessions;
}

SessionsResult Run(const ClusterShape& shape, const std::vector<Session>& sessions, const SessionOptions& options) {
  auto result = RunSessions(shape, sessions, options);
  INFO(result.status());
  REQUIRE(result.ok());
  CHECK(result->blocks_held == 0);
  return *std::move(result);
}

void CheckSameTokens(const SessionsResult& a, const SessionsResult& b) {
  REQUIRE(a.sessions.size() == b.sessions.size());
  for (size_t s = 0; s < a.sessions.size(); ++s) {
    for (size_t t = 0; t < kTurns; ++t) {
      CAPTURE(s, t);
      CHECK(a.sessions[s].at(t).tokens.size() == 50);
      CHECK(a.sessions[s].at(t).tokens == b.sessions[s].at(t).tokens);
    }
  }
}

int64_t PrefillTokens(const SessionsResult& result) {
  int64_t tokens = 0;
  for (const StepRecord& step : result.steps) tokens += step.worker.starts_with("prefill") ? step.tokens : 0;
  return tokens;
}

TEST_CASE("Decoders of one module give the same outputs with and without sharing") {
  const auto sessions = Sessions(6);
  ClusterShape shape = SessionShape();
  const SessionsResult alone = Run(shape, sessions, {.share = false, .concurrent = 1});
  CheckSameTokens(alone, Run(shape, sessions, {}));
  for (const Routing routing : {Routing::kLeastLoaded, Routing::kRandom}) {
    shape.routing = routing;
    CheckSameTokens(alone, Run(shape, sessions, {}));
  }
}

TEST_CASE("A decoder with its own weights gives other outputs") {
  const SessionsResult own = Run(SessionShape(), Sessions(1), {});
  std::vector<std::string> agents = kAgents;
  agents.front() = "base";
  const SessionsResult base = Run(SessionShape("base"), Sessions(1, agents), {});
  CHECK(own.sessions[0][0].tokens != base.sessions[0][0].tokens);
}

TEST_CASE("Prefill computes each token of a session's context once") {
  const auto sessions = Sessions(1);
  ClusterShape shape = SessionShape();
  for (const bool shadow : {true, false}) {
    CAPTURE(shadow);
    shape.shadow_prefill = shadow;
    const SessionsResult result = Run(shape, sessions, {});
    // The tokens of a turn end within a block. The next turn and its shadow prefill each compute
    // that block again.
    const int64_t context = result.sessions[0].back().prompt_tokens;
    CHECK(PrefillTokens(result) >= context - 1);
    CHECK(PrefillTokens(result) <= context + 2 * kBlockTokens * kTurns);
  }
}

TEST_CASE("Shadow prefill leaves a turn only its own tokens to compute") {
  ClusterShape shape = SessionShape();
  const auto computed = [&](bool shadow) {
    shape.shadow_prefill = shadow;
    const TurnRan turn = Run(shape, Sessions(1), {}).sessions[0].back();
    return turn.prompt_tokens - turn.cached_tokens;
  };
  const int64_t added = 200 + 7 * (kTurns - 1);
  CHECK(computed(true) <= added + kBlockTokens);
  CHECK(computed(false) >= added + 50 - kBlockTokens);
}

TEST_CASE("The limit on active sessions holds, and all sessions end") {
  const SessionsResult result = Run(SessionShape(), Sessions(5), {.concurrent = 2});
  for (size_t s = 0; s < 5; ++s) {
    int running = 0;
    for (const auto& other : result.sessions) {
      const absl::Duration at = result.sessions[s].front().submitted;
      running += other.front().submitted <= at && at < other.back().ended ? 1 : 0;
    }
    CHECK(running <= 2);
  }
  CHECK_FALSE(RunSessions(SessionShape(), Sessions(2), {.arrivals = {absl::Seconds(1)}}).ok());
}

TEST_CASE("Sessions beyond KV memory wait, and fewer tokens are computed twice") {
  const auto sessions = Sessions(200);
  ClusterShape shape = SessionShape();
  const SessionsResult roomy = Run(shape, sessions, {});
  shape.blocks = 6000;  // a context ends with 3,900 tokens, and there are two prefill workers
  const SessionsResult any_number = Run(shape, sessions, {});
  shape.sessions = SessionLimits{};
  const SessionsResult as_seen = Run(shape, sessions, {});
  CheckSameTokens(roomy, as_seen);
  CHECK(as_seen.refused == 0);
  const int64_t once = PrefillTokens(roomy);
  CAPTURE(once, PrefillTokens(any_number), PrefillTokens(as_seen));
  CHECK(PrefillTokens(any_number) > 2 * once);
  CHECK(4 * PrefillTokens(as_seen) < 3 * PrefillTokens(any_number));
}

TEST_CASE("Evicted session KV returns from host memory at the cost of copies") {
  const auto sessions = Sessions(60);
  ClusterShape shape = SessionShape();
  const SessionsResult roomy = Run(shape, sessions, {});
  CHECK(roomy.host_tokens == 0);
  shape.blocks = 1800;
  const SessionsResult lost = Run(shape, sessions, {});
  shape.host_blocks = 18'000;
  const SessionsResult staged = Run(shape, sessions, {});
  CheckSameTokens(roomy, staged);
  CAPTURE(PrefillTokens(roomy), PrefillTokens(lost), PrefillTokens(staged), staged.host_tokens);
  CHECK(PrefillTokens(lost) > 2 * PrefillTokens(roomy));
  CHECK(100 * PrefillTokens(staged) < 105 * PrefillTokens(roomy));
  const auto last = [](const SessionsResult& result) {
    absl::Duration ended;
    for (const auto& turns : result.sessions) ended = std::max(ended, turns.back().ended);
    return ended;
  };
  CHECK(last(staged) < last(lost));
  absl::Duration copied;
  for (const StepRecord& step : staged.steps) copied += step.copied;
  // Llama has 2 MiB a block, and the copies run at 20 GB/s. A block is copied out at most once,
  // because host memory keeps it when it comes back. Shadow prefill brings back blocks too.
  const auto time_of = [](int64_t tokens) {
    return absl::Seconds(static_cast<double>(tokens) / kBlockTokens * (1 << 21) / 20e9);
  };
  CHECK(copied > time_of(staged.host_tokens));
  CHECK(copied < time_of(staged.host_tokens + PrefillTokens(staged)));
}

TEST_CASE("A turn begins when the pause after the previous turn is over") {
  auto sessions = Sessions(3);
  for (Session& session : sessions) session[5].pause = absl::Seconds(7);
  const SessionsResult result = Run(SessionShape(), sessions, {});
  for (const auto& turns : result.sessions) {
    REQUIRE(turns.size() == kTurns);
    for (size_t t = 1; t < kTurns; ++t) {
      CHECK(turns[t].submitted - turns[t - 1].ended == (t == 5 ? absl::Seconds(7) : absl::ZeroDuration()));
    }
  }
  CheckSameTokens(result, Run(SessionShape(), Sessions(3), {}));
}

TEST_CASE("No session waits when memory holds all sessions") {
  ClusterShape shape = SessionShape();
  const SessionsResult without = Run(shape, Sessions(24), {});
  shape.sessions = SessionLimits{};
  CHECK(Run(shape, Sessions(24), {}).steps == without.steps);
}

}  // namespace
}  // namespace baton
