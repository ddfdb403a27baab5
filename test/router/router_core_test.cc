#include "router/router_core.h"

#include "catch.h"

namespace baton {
namespace {

using Kind = RouterAction::Kind;

constexpr const char* kP = "prefill-1";
constexpr const char* kD = "decode-1";

WorkerInfo Info(WorkerRole role, const std::string& name, uint64_t incarnation = 1) {
  return {.role = role,
          .address = name,
          .incarnation = Incarnation(incarnation),
          .model = "m",
          .blocks_total = 100,
          .context = 1000,
          .max_batch = 8};
}

RouteRequest Request(const std::string& id, absl::Time deadline = absl::InfiniteFuture()) {
  return {.id = id, .model = "m", .prompt_tokens = 20, .max_new_tokens = 10, .deadline = deadline};
}

// One line for each action: "prefill r1 prefill-1 decode-1", "end r1 UNAVAILABLE".
std::vector<std::string> Take(RouterCore& core) {
  core.CheckInvariants();
  std::vector<std::string> lines;
  for (const RouterAction& action : core.TakeActions()) {
    switch (action.kind) {
      case Kind::kStartPrefill:
        lines.push_back(absl::StrCat(action.open ? "open " : "prefill ", action.request, " ", action.worker, " ",
                                     action.decode_worker));
        break;
      case Kind::kAppend:
        lines.push_back(absl::StrCat("append ", action.request, " ", action.worker));
        break;
      case Kind::kClose:
        lines.push_back(absl::StrCat("close ", action.request, " ", action.worker, " ", action.decode_worker));
        break;
      case Kind::kStartDecode:
        lines.push_back(absl::StrCat("decode ", action.request, " ", action.worker));
        break;
      case Kind::kCancel:
        lines.push_back(absl::StrCat("cancel ", action.request, " ", action.worker));
        break;
      case Kind::kEnd:
        lines.push_back(absl::StrCat("end ", action.request, " ", absl::StatusCodeToString(action.status.code())));
    }
  }
  return lines;
}

using Lines = std::vector<std::string>;

struct Cluster {
  absl::Time now = absl::UnixEpoch();
  RouterCore core;
  explicit Cluster(RouterLimits limits = {}) : core(limits) {
    core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP, 11), now);
    core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 22), now);
  }
};

enum class Stage { kPrefilling, kStarting, kDecoding };

// A cluster with request "r" in the given state and no action pending.
void Bring(Cluster& c, Stage stage) {
  REQUIRE(c.core.Submit(Request("r", c.now + absl::Seconds(60)), c.now).ok());
  if (stage != Stage::kPrefilling) REQUIRE(c.core.PrefillDone(kP, "r", Incarnation(22)));
  if (stage == Stage::kDecoding) REQUIRE(c.core.TokensArrived(kD, "r", false));
  Take(c.core);
}

TEST_CASE("a request goes through prefill and decode and ends once") {
  Cluster c;
  REQUIRE(c.core.Submit(Request("r"), c.now).ok());
  CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  CHECK(c.core.PrefillDone(kP, "r", Incarnation(22)));
  CHECK(Take(c.core) == Lines{"decode r decode-1"});
  CHECK(c.core.TokensArrived(kD, "r", false));
  CHECK(c.core.TokensArrived(kD, "r", true));
  CHECK(Take(c.core) == Lines{"end r OK"});
  CHECK_FALSE(c.core.TokensArrived(kD, "r", true));
  c.core.Cancel("r");
  CHECK(Take(c.core).empty());
  CHECK(c.core.live_requests() == 0);
}

RouteRequest OpenRequest(const std::string& id) {
  RouteRequest request = Request(id);
  request.open = true;
  request.prompt_tokens = 0;
  return request;
}

TEST_CASE("a growing prompt is at a prefill worker, and gets a decode worker when it is complete") {
  Cluster c;
  REQUIRE(c.core.Submit(OpenRequest("r"), c.now).ok());
  CHECK(Take(c.core) == Lines{"open r prefill-1 "});
  c.core.Grew("r", 16);
  CHECK(Take(c.core) == Lines{"append r prefill-1"});
  CHECK(c.core.workers().at(kP).prompt_tokens == 16);
  CHECK(c.core.workers().at(kD).requests.empty());
  c.core.Closed("r", 30, 10, c.now);
  CHECK(Take(c.core) == Lines{"close r prefill-1 decode-1"});
  CHECK(c.core.PrefillDone(kP, "r", Incarnation(22)));
  CHECK(Take(c.core) == Lines{"decode r decode-1"});
  CHECK(c.core.workers().at(kP).prompt_tokens == 0);
}

TEST_CASE("a growing prompt that waits for a worker is sent as it is when one comes") {
  Cluster c;
  c.core.WorkerLost(kP, c.now);
  REQUIRE(c.core.Submit(OpenRequest("r"), c.now).ok());
  REQUIRE(c.core.Submit(OpenRequest("s"), c.now).ok());
  c.core.Grew("r", 16);
  c.core.Closed("s", 5, 10, c.now);
  CHECK(Take(c.core).empty());
  c.core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP, 12), c.now);
  CHECK(Take(c.core) == Lines{"open r prefill-1 ", "prefill s prefill-1 decode-1"});
}

TEST_CASE("a growing prompt ends with its worker, its client, its deadline or an error of ours") {
  Cluster c;
  for (const char* id : {"a", "b", "c", "d"}) {
    RouteRequest request = OpenRequest(id);
    if (id[0] == 'c') request.deadline = c.now + absl::Seconds(1);
    REQUIRE(c.core.Submit(request, c.now).ok());
  }
  Take(c.core);
  c.core.Cancel("a");
  CHECK(Take(c.core) == Lines{"cancel a prefill-1", "end a CANCELLED"});
  c.core.Fail("b", absl::AbortedError("upstream"));
  CHECK(Take(c.core) == Lines{"cancel b prefill-1", "end b ABORTED"});
  c.core.Tick(c.now + absl::Seconds(2));
  CHECK(Take(c.core) == Lines{"cancel c prefill-1", "end c DEADLINE_EXCEEDED"});
  CHECK(c.core.live_requests() == 1);
}

TEST_CASE("a growing prompt whose worker is lost is placed again, as far as it is known") {
  Cluster c;
  REQUIRE(c.core.Submit(OpenRequest("r"), c.now).ok());
  c.core.Grew("r", 32);
  Take(c.core);
  c.core.WorkerLost(kP, c.now);
  CHECK(Take(c.core).empty());
  c.core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP, 12), c.now);
  CHECK(Take(c.core) == Lines{"open r prefill-1 "});
  CHECK(c.core.workers().at(kP).prompt_tokens == 32);
  c.core.WorkerLost(kP, c.now);
  c.core.Tick(c.now + absl::Seconds(5));
  CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
}

TEST_CASE("a prompt that is complete when no decode worker is left fails and may be sent again") {
  Cluster c;
  REQUIRE(c.core.Submit(OpenRequest("r"), c.now).ok());
  c.core.WorkerLost(kD, c.now);
  Take(c.core);
  c.core.Closed("r", 30, 10, c.now);
  CHECK(Take(c.core) == Lines{"cancel r prefill-1", "end r UNAVAILABLE"});
}

TEST_CASE("a growing prompt that a prefill worker has no room for goes to another, or grows at home") {
  Cluster c;
  const RouterCore::Failure full{absl::ResourceExhaustedError("full"), absl::Milliseconds(100)};
  REQUIRE(c.core.Submit(OpenRequest("r"), c.now).ok());
  Take(c.core);
  SECTION("to another") {
    c.core.WorkerAttached("prefill-2", Info(WorkerRole::kPrefill, "prefill-2", 12), c.now);
    c.core.Failed(kP, "r", full, c.now);
    CHECK(Take(c.core) == Lines{"open r prefill-2 "});
  }
  SECTION("at home, for as long as its upstream takes, until it is complete") {
    c.core.Failed(kP, "r", full, c.now);
    c.core.Grew("r", 32);
    c.core.Tick(c.now += absl::Hours(1));
    CHECK(Take(c.core).empty());
    CHECK(c.core.NextTick() == absl::InfiniteFuture());
    c.core.Closed("r", 40, 10, c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
    // From now on its waiting is counted as any other's.
    c.core.Failed(kP, "r", full, c.now);
    c.core.Tick(c.now += absl::Seconds(29));
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
    c.core.Failed(kP, "r", full, c.now += absl::Seconds(1));
    CHECK(Take(c.core) == Lines{"end r RESOURCE_EXHAUSTED"});
  }
  SECTION("at home, until its client or its deadline ends it") {
    RouteRequest late = OpenRequest("late");
    late.deadline = c.now + absl::Seconds(5);
    REQUIRE(c.core.Submit(late, c.now).ok());
    Take(c.core);
    c.core.Failed(kP, "r", full, c.now);
    c.core.Failed(kP, "late", full, c.now);
    c.core.Cancel("r");
    CHECK(Take(c.core) == Lines{"end r CANCELLED"});
    c.core.Tick(c.now + absl::Seconds(5));
    CHECK(Take(c.core) == Lines{"end late DEADLINE_EXCEEDED"});
  }
}

TEST_CASE("growing prompts at home keep no place from those that wait for room, and are as many as may live") {
  RouterLimits limits;
  limits.waiting_requests = 1;
  Cluster c(limits);
  const RouterCore::Failure full{absl::ResourceExhaustedError("full"), absl::Milliseconds(100)};
  const Lines ids = {"a", "b", "c"};
  for (const std::string& id : ids) {
    REQUIRE(c.core.Submit(OpenRequest(id), c.now).ok());
    c.core.Failed(kP, id, full, c.now);
  }
  REQUIRE(c.core.Submit(Request("whole"), c.now).ok());
  Take(c.core);
  c.core.Failed(kP, "whole", full, c.now);
  CHECK(Take(c.core).empty());
  CHECK(c.core.waiting_requests() == 1);
  c.core.Tick(c.now += absl::Seconds(1));
  CHECK(Take(c.core) == Lines{"prefill whole prefill-1 decode-1"});
  for (const std::string& id : ids) {
    c.core.Closed(id, 20, 10, c.now);
    CHECK(Take(c.core) == Lines{absl::StrCat("prefill ", id, " prefill-1 decode-1")});
  }
}

TEST_CASE("prefill-only needs no decode worker and ends when the prompt is computed") {
  Cluster c;
  c.core.WorkerLost(kD, c.now);
  RouteRequest request = Request("r");
  request.prefill_only = true;
  REQUIRE(c.core.Submit(request, c.now).ok());
  CHECK(Take(c.core) == Lines{"prefill r prefill-1 "});
  CHECK(c.core.PrefillDone(kP, "r", Incarnation()));
  CHECK(Take(c.core) == Lines{"end r OK"});
}

TEST_CASE("a cancelled request is cancelled wherever something of it may be") {
  Cluster c;
  SECTION("prefilling") {
    Bring(c, Stage::kPrefilling);
    c.core.Cancel("r");
    CHECK(Take(c.core) == Lines{"cancel r prefill-1", "cancel r decode-1", "end r CANCELLED"});
    // The commit had been on its way: what the decode worker holds is freed.
    CHECK_FALSE(c.core.PrefillDone(kP, "r", Incarnation(22)));
    CHECK(Take(c.core) == Lines{"cancel r decode-1"});
  }
  SECTION("starting") {
    Bring(c, Stage::kStarting);
    c.core.Cancel("r");
    CHECK(Take(c.core) == Lines{"cancel r decode-1", "end r CANCELLED"});
  }
  SECTION("decoding") {
    Bring(c, Stage::kDecoding);
    c.core.Cancel("r");
    CHECK(Take(c.core) == Lines{"cancel r decode-1", "end r CANCELLED"});
    CHECK_FALSE(c.core.TokensArrived(kD, "r", false));
  }
  SECTION("waiting") {
    c.core.WorkerLost(kP, c.now);
    REQUIRE(c.core.Submit(Request("r"), c.now).ok());
    c.core.Cancel("r");
    CHECK(Take(c.core) == Lines{"end r CANCELLED"});
  }
}

TEST_CASE("a deadline ends a request like a cancel, in every state") {
  Cluster c;
  const Stage stage = GENERATE(Stage::kPrefilling, Stage::kStarting, Stage::kDecoding);
  Bring(c, stage);
  CHECK(c.core.NextTick() == c.now + absl::Seconds(60));
  c.core.Tick(c.now + absl::Seconds(59));
  CHECK(Take(c.core).empty());
  c.core.Tick(c.now + absl::Seconds(60));
  const Lines lines = Take(c.core);
  CHECK(lines.back() == "end r DEADLINE_EXCEEDED");
  CHECK(lines.size() == (stage == Stage::kPrefilling ? 3 : 2));
  CHECK(c.core.NextTick() == absl::InfiniteFuture());
}

TEST_CASE("a lost worker ends its requests with UNAVAILABLE and frees them at the other worker") {
  Cluster c;
  SECTION("prefill worker while prefilling") {
    Bring(c, Stage::kPrefilling);
    c.core.WorkerLost(kP, c.now);
    CHECK(Take(c.core) == Lines{"cancel r decode-1", "end r UNAVAILABLE"});
  }
  SECTION("decode worker while prefilling") {
    Bring(c, Stage::kPrefilling);
    c.core.WorkerLost(kD, c.now);
    CHECK(Take(c.core) == Lines{"cancel r prefill-1", "end r UNAVAILABLE"});
  }
  SECTION("decode worker while starting") {
    Bring(c, Stage::kStarting);
    c.core.WorkerLost(kD, c.now);
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
  SECTION("decode worker while decoding") {
    Bring(c, Stage::kDecoding);
    c.core.WorkerLost(kD, c.now);
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
  SECTION("prefill worker while decoding: it has done its part") {
    Bring(c, Stage::kDecoding);
    c.core.WorkerLost(kP, c.now);
    CHECK(Take(c.core).empty());
    CHECK(c.core.TokensArrived(kD, "r", true));
    CHECK(Take(c.core) == Lines{"end r OK"});
  }
}

TEST_CASE("a hand-off to a decode worker that has restarted since is not started") {
  Cluster c;
  Bring(c, Stage::kPrefilling);
  CHECK_FALSE(c.core.PrefillDone(kP, "r", Incarnation(23)));
  CHECK(Take(c.core) == Lines{"cancel r decode-1", "end r UNAVAILABLE"});
}

TEST_CASE("a request waits a while for a worker, then is refused") {
  Cluster c({.waiting_requests = 1, .worker_wait = absl::Seconds(2)});
  c.core.WorkerLost(kD, c.now);
  REQUIRE(c.core.Submit(Request("r"), c.now).ok());
  CHECK(Take(c.core).empty());
  CHECK(absl::IsResourceExhausted(c.core.Submit(Request("too many"), c.now)));
  SECTION("the worker comes in time") {
    c.core.Tick(c.now + absl::Seconds(1));
    c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 23), c.now + absl::Seconds(1));
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  }
  SECTION("it does not") {
    c.core.Tick(c.now + absl::Seconds(2));
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
  SECTION("one for another module comes") {
    WorkerInfo other = Info(WorkerRole::kDecode, kD);
    other.module_digest[0] = 1;
    c.core.WorkerAttached(kD, other, c.now);
    CHECK(Take(c.core).empty());
    CHECK(absl::IsUnavailable(c.core.Readiness("m", false)));
  }
}

TEST_CASE("a request that finds no room tries again until it fits, its deadline comes or the wait is over") {
  Cluster c({.capacity_wait = absl::Seconds(30)});
  const absl::Duration until = GENERATE(absl::Seconds(10), absl::Seconds(100));
  REQUIRE(c.core.Submit(Request("r", c.now + until), c.now).ok());
  Take(c.core);
  c.core.Failed(kP, "r", {absl::ResourceExhaustedError("full"), absl::Milliseconds(300)}, c.now);
  CHECK(Take(c.core).empty());
  CHECK(c.core.waiting_requests() == 1);
  CHECK(c.core.NextTick() == c.now + absl::Milliseconds(300));
  c.core.Tick(c.now + absl::Milliseconds(300));
  CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  SECTION("it fits") {
    CHECK(c.core.PrefillDone(kP, "r", Incarnation(22)));
    CHECK(Take(c.core) == Lines{"decode r decode-1"});
  }
  SECTION("it never does") {
    std::string end;
    c.core.Failed(kP, "r", {absl::ResourceExhaustedError("full"), absl::Seconds(1)}, c.now);
    for (absl::Time t = c.now; end.empty(); t += absl::Milliseconds(100)) {
      REQUIRE(t < c.now + absl::Seconds(31));
      c.core.Tick(t);
      for (const std::string& line : Take(c.core)) {
        if (line.starts_with("prefill")) {
          c.core.Failed(kP, "r", {absl::ResourceExhaustedError("full"), absl::Seconds(1)}, t);
        } else {
          end = line;
        }
      }
    }
    CHECK(end == (until < absl::Seconds(30) ? "end r DEADLINE_EXCEEDED" : "end r RESOURCE_EXHAUSTED"));
  }
}

RouterCore::Failure Full(absl::Duration hint = absl::Milliseconds(50), bool at_decode = true) {
  return {absl::ResourceExhaustedError("full"), hint, at_decode};
}

TEST_CASE("a session leaves a decode worker that has no room for one that has, at once") {
  Cluster c;
  RouteRequest turn = Request("turn 1");
  turn.session = std::string("s");
  REQUIRE(c.core.Submit(turn, c.now).ok());
  Take(c.core);
  c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 33), c.now);
  turn.id = std::string("turn 2");
  REQUIRE(c.core.Submit(turn, c.now).ok());
  CHECK(Take(c.core) == Lines{"prefill turn 2 prefill-1 decode-1"});
  SECTION("refused by the hand-off") { c.core.Failed(kP, "turn 2", Full(), c.now); }
  SECTION("refused when it is started") {
    REQUIRE(c.core.PrefillDone(kP, "turn 2", Incarnation(22)));
    Take(c.core);
    c.core.Failed(kD, "turn 2", Full(), c.now);
  }
  CHECK(Take(c.core) == Lines{"prefill turn 2 prefill-1 decode-2"});
  turn.id = std::string("turn 3");  // the pin has moved
  REQUIRE(c.core.Submit(turn, c.now).ok());
  CHECK(Take(c.core) == Lines{"prefill turn 3 prefill-1 decode-2"});
}

TEST_CASE("a request that all decode workers refused goes to the first whose hint has passed") {
  Cluster c;
  c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 33), c.now);
  REQUIRE(c.core.Submit(Request("r"), c.now).ok());
  const std::string first = c.core.TakeActions()[0].decode_worker;
  c.core.Failed(kP, "r", Full(absl::Milliseconds(300)), c.now);
  const auto second = c.core.TakeActions();
  REQUIRE(second.size() == 1);
  CHECK(second[0].decode_worker != first);
  c.core.Failed(kP, "r", Full(absl::Milliseconds(100)), c.now);
  CHECK(Take(c.core).empty());
  CHECK(c.core.waiting_requests() == 1);
  CHECK(c.core.NextTick() == c.now + absl::Milliseconds(100));
  SECTION("its hint") {
    c.core.Tick(c.now + absl::Milliseconds(100));
    CHECK(Take(c.core) == Lines{absl::StrCat("prefill r prefill-1 ", second[0].decode_worker)});
  }
  SECTION("a third worker comes before that") {
    c.core.WorkerAttached("decode-3", Info(WorkerRole::kDecode, "decode-3", 44), c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-3"});
  }
  SECTION("its worker is lost, and the other one's hint passes") {
    c.core.WorkerLost(second[0].decode_worker, c.now);
    c.core.Tick(c.now + absl::Milliseconds(100));
    CHECK(Take(c.core).empty());
    c.core.Tick(c.now + absl::Milliseconds(300));
    CHECK(Take(c.core) == Lines{absl::StrCat("prefill r prefill-1 ", first)});
  }
  SECTION("all are lost") {
    c.core.WorkerLost(kD, c.now);
    c.core.WorkerLost("decode-2", c.now);
    for (absl::Time t = c.now; t < c.now + absl::Seconds(5); t += absl::Milliseconds(50)) c.core.Tick(t);
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
}

TEST_CASE("requests that wait for room ask again in order of priority and turn, whosever hint has passed") {
  Cluster c;
  const auto refuse = [&](const std::string& id, int32_t priority, absl::Duration turn, absl::Duration hint) {
    RouteRequest request = Request(id);
    request.priority = priority;
    request.turn = c.now + turn;
    REQUIRE(c.core.Submit(request, c.now).ok());
    c.core.Failed(kP, id, Full(hint), c.now);
    Take(c.core);
  };
  refuse("late", 0, absl::Seconds(2), absl::Milliseconds(100));
  refuse("early", 0, absl::Seconds(1), absl::Milliseconds(200));
  refuse("urgent", 1, absl::Seconds(3), absl::Milliseconds(300));
  REQUIRE(c.core.waiting_requests() == 3);
  const auto asks = [](const std::string& id) { return absl::StrCat("prefill ", id, " prefill-1 decode-1"); };
  SECTION("one hint after the other") {
    for (const std::string id : {"urgent", "early", "late"}) {
      CHECK(Take(c.core).empty());
      c.core.Tick(c.now += absl::Milliseconds(100));
      CHECK(Take(c.core) == Lines{asks(id)});
    }
  }
  SECTION("all hints in one tick") {
    c.core.Tick(c.now + absl::Milliseconds(300));
    CHECK(Take(c.core) == Lines{asks("urgent"), asks("early"), asks("late")});
  }
  SECTION("one that is refused again waits for another hint") {
    c.core.Tick(c.now += absl::Milliseconds(100));
    CHECK(Take(c.core) == Lines{asks("urgent")});
    c.core.Failed(kP, "urgent", Full(absl::Milliseconds(250)), c.now);
    c.core.Tick(c.now += absl::Milliseconds(100));
    CHECK(Take(c.core) == Lines{asks("urgent")});
    c.core.Tick(c.now += absl::Milliseconds(100));
    CHECK(Take(c.core) == Lines{asks("early")});
  }
  SECTION("one that waits for another worker is not asked for") {
    WorkerInfo other = Info(WorkerRole::kDecode, "decode-2", 33);
    other.model = "n";
    c.core.WorkerAttached("decode-2", other, c.now);
    RouteRequest request = Request("other");
    request.model = "n";
    request.priority = 9;
    REQUIRE(c.core.Submit(request, c.now).ok());
    c.core.Failed(kP, "other", Full(absl::Milliseconds(500)), c.now);
    Take(c.core);
    c.core.Tick(c.now += absl::Milliseconds(100));
    CHECK(Take(c.core) == Lines{asks("urgent")});
  }
}

TEST_CASE("a prefill worker that has too much is left out, not the decode worker") {
  Cluster c;
  c.core.WorkerAttached("prefill-2", Info(WorkerRole::kPrefill, "prefill-2", 12), c.now);
  REQUIRE(c.core.Submit(Request("r"), c.now).ok());
  const std::string first = c.core.TakeActions()[0].worker;
  c.core.Failed(first, "r", Full(absl::Milliseconds(50), false), c.now);
  CHECK(Take(c.core) == Lines{absl::StrCat("prefill r ", first == kP ? "prefill-2" : kP, " decode-1")});
}

TEST_CASE("workers that take turns to refuse do not hold a request for ever") {
  Cluster c({.capacity_wait = absl::Seconds(30)});
  c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 33), c.now);
  REQUIRE(c.core.Submit(Request("r"), c.now).ok());
  absl::Time t = c.now;
  std::string end;
  for (; end.empty(); t += absl::Milliseconds(50)) {
    REQUIRE(t < c.now + absl::Seconds(31));
    c.core.Tick(t);
    for (const std::string& line : Take(c.core)) {
      if (line.starts_with("end")) end = line;
    }
    c.core.Failed(kP, "r", Full(absl::Milliseconds(20)), t);
  }
  CHECK(end == "end r RESOURCE_EXHAUSTED");
}

TEST_CASE("a request that has begun to answer is not tried again") {
  Cluster c;
  Bring(c, Stage::kDecoding);
  c.core.Failed(kD, "r", Full(), c.now);
  CHECK(Take(c.core) == Lines{"end r RESOURCE_EXHAUSTED"});
}

TEST_CASE("other failures end the request with the worker's words") {
  Cluster c;
  Bring(c, Stage::kDecoding);
  c.core.Failed(kP, "r", {absl::InternalError("not its request any more"), absl::ZeroDuration()}, c.now);
  CHECK(Take(c.core).empty());
  c.core.Failed(kD, "r", {absl::InternalError("boom"), absl::ZeroDuration()}, c.now);
  const auto actions = c.core.TakeActions();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].status.message() == "boom");
}

TEST_CASE("a hand-off that is in doubt when it is started may be tried again by the client") {
  Cluster c;
  Bring(c, Stage::kStarting);
  c.core.Failed(kD, "r", {absl::FailedPreconditionError("lapsed"), absl::ZeroDuration()}, c.now);
  CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
}

TEST_CASE("a higher priority is placed first when a worker comes") {
  Cluster c;
  c.core.WorkerLost(kP, c.now);
  for (int priority : {0, 5, -3, 5}) {
    RouteRequest request = Request(absl::StrCat("p", priority, c.core.waiting_requests()));
    request.priority = priority;
    REQUIRE(c.core.Submit(request, c.now).ok());
  }
  c.core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP), c.now);
  CHECK(Take(c.core) == Lines{"prefill p51 prefill-1 decode-1", "prefill p53 prefill-1 decode-1",
                              "prefill p00 prefill-1 decode-1", "prefill p-32 prefill-1 decode-1"});
}

TEST_CASE("among equal priorities the earlier turn is placed first, then what came first") {
  Cluster c;
  c.core.WorkerLost(kP, c.now);
  const auto submit = [&](const std::string& id, int turn, int32_t priority) {
    RouteRequest request = Request(id);
    request.turn = c.now + absl::Seconds(turn);
    request.priority = priority;
    REQUIRE(c.core.Submit(request, c.now).ok());
  };
  submit("late", 9, 0);
  submit("early", 2, 0);
  submit("early too", 2, 0);
  submit("high", 20, 1);
  c.core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP), c.now);
  CHECK(Take(c.core) == Lines{"prefill high prefill-1 decode-1", "prefill early prefill-1 decode-1",
                              "prefill early too prefill-1 decode-1", "prefill late prefill-1 decode-1"});
}

TEST_CASE("a prompt's uncached tokens are those of the worker that has most of it") {
  Cluster c;
  c.core.WorkerAttached("prefill-2", Info(WorkerRole::kPrefill, "prefill-2", 12), c.now);
  RouteRequest request = Request("r");
  request.prompt_tokens = 40;
  request.keys.resize(2);
  request.keys[1].bytes[0] = 1;
  CHECK(c.core.FewestUncached(request) == 40);
  REQUIRE(c.core.Submit(request, c.now).ok());
  CHECK(c.core.FewestUncached(request) == 8);
}

TEST_CASE("an id that is live, too many requests and a deadline in the past are refused") {
  Cluster c({.live_requests = 1});
  REQUIRE(c.core.Submit(Request("r"), c.now).ok());
  CHECK(absl::IsAlreadyExists(c.core.Submit(Request("r"), c.now)));
  CHECK(absl::IsResourceExhausted(c.core.Submit(Request("s"), c.now)));
  c.core.Cancel("r");
  Take(c.core);
  REQUIRE(c.core.Submit(Request("late", c.now), c.now).ok());
  CHECK(Take(c.core) == Lines{"end late DEADLINE_EXCEEDED"});
}

TEST_CASE("a session's requests go to the decode worker that served it last") {
  Cluster c;
  c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 33), c.now);
  std::string first;
  for (int turn = 0; turn < 6; ++turn) {
    RouteRequest request = Request(absl::StrCat("turn", turn));
    request.session = std::string("s");
    REQUIRE(c.core.Submit(request, c.now).ok());
    const auto actions = c.core.TakeActions();
    REQUIRE(actions.size() == 1);
    if (turn == 0) first = actions[0].decode_worker;
    CHECK(actions[0].decode_worker == first);
  }
}

TEST_CASE("shutting down ends everything") {
  Cluster c;
  Bring(c, Stage::kDecoding);
  REQUIRE(c.core.Submit(Request("s"), c.now).ok());
  Take(c.core);
  c.core.EndAll();
  CHECK(Take(c.core) == Lines{"cancel r decode-1", "end r UNAVAILABLE", "cancel s prefill-1", "cancel s decode-1",
                              "end s UNAVAILABLE"});
}

}  // namespace
}  // namespace baton
