#include "router/prefill_ahead.h"

#include "world/dispatcher_world.h"

namespace baton {
namespace {

// The router's parts that PrefillAhead needs, with one worker of each kind.
struct Ahead {
  explicit Ahead(int32_t most_live = 10) : ahead({.shadows = true, .most_live = most_live}, requests, core, graph) {
    core.WorkerAttached(kP, BytesWorker(WorkerRole::kPrefill, kP, 11), now);
    core.WorkerAttached(kD, BytesWorker(WorkerRole::kDecode, kD, 22), now);
  }
  // Adds a turn of a session that kP has prefilled.
  Request& Turn(const RequestId& id, std::vector<TokenId> tokens) {
    ClientRequest asked{.id = id, .served = &model, .session = "s", .spec = {.tokens = std::move(tokens)}};
    Request& record = requests.Add(std::make_unique<Request>(std::move(asked)));
    record.number = requests.DrawNumber();
    record.prefilled_by = kP;
    REQUIRE(core.Submit(record, now).ok());
    return record;
  }
  void Generate(Request& record, size_t tokens) {
    ahead.Generated(record, std::vector<TokenId>(tokens, 7), now);
    ahead.CheckInvariants();
  }

  const ServedModel model = ByteModel("bytes");
  absl::Time now = absl::UnixEpoch();
  RequestTable requests{0xab};
  RouterCore core{{}};
  AgentGraph graph{{}, [](const RequestId&) { return nullptr; }};
  PrefillAhead ahead;
};

TEST_CASE("PrefillAhead starts a shadow prefill with a block and adds the rest at the end") {
  Ahead a;
  Request& turn = a.Turn("r", {1, 2, 3});
  a.Generate(turn, 15);
  CHECK(turn.shadow_request == nullptr);
  a.Generate(turn, 1);
  Request* shadow = turn.shadow_request;
  REQUIRE(shadow != nullptr);
  CHECK(shadow->id == "r~1");
  CHECK(shadow->asked.spec.tokens.size() == 3 + 16);
  a.Generate(turn, 15);
  CHECK(shadow->asked.spec.tokens.size() == 3 + 16);
  a.Generate(turn, 2);
  CHECK(shadow->asked.spec.tokens.size() == 3 + 33);
  a.Generate(turn, 4);
  a.ahead.Ended(turn, a.now);
  CHECK(shadow->asked.spec.tokens.size() == 3 + 37);
  CHECK(shadow->placement.state == Placement::State::kPrefilling);
  CHECK(shadow->placement.timer == a.now + absl::Seconds(10));
  CHECK(shadow->shadow_of == nullptr);
  a.ahead.CheckInvariants();
}

TEST_CASE("PrefillAhead cancels a shadow prefill when the session's next turn is prefilled") {
  Ahead a;
  Request& turn = a.Turn("r", {1, 2, 3});
  a.Generate(turn, 16);
  Request* shadow = turn.shadow_request;
  REQUIRE(shadow != nullptr);
  std::vector<TokenId> tokens(shadow->asked.spec.tokens.begin(), shadow->asked.spec.tokens.end());
  tokens.back() = 8;
  a.ahead.Prefilled(a.Turn("branch", tokens));
  CHECK(shadow->placement.state == Placement::State::kStreaming);
  tokens.back() = 7;
  tokens.push_back(9);
  a.ahead.Prefilled(a.Turn("next", tokens));
  CHECK(shadow->placement.state == Placement::State::kNone);
}

TEST_CASE("PrefillAhead starts no shadow prefill when there is no room") {
  Ahead a(/*most_live=*/1);
  Request& turn = a.Turn("r", {1, 2, 3});
  a.Generate(turn, 40);
  CHECK(turn.shadow_request == nullptr);
  CHECK(turn.shadowed);
  CHECK(turn.unshadowed.empty());
  CHECK(a.requests.size() == 1);
}

TEST_CASE("PrefillAhead refuses a prefill hint when its call waits for a worker") {
  Ahead a;
  Request& call = a.Turn("r", {1, 2, 3});
  ClientRequest prompt;
  prompt.served = &a.model;
  CHECK(absl::IsResourceExhausted(a.ahead.AddPrefillHint(call, prompt, a.now)));
  CHECK(a.requests.size() == 1);
}

}  // namespace
}  // namespace baton
