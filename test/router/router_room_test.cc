// Tests of workers without room: refusals, retry delays, and the order in which requests ask again.
#include "world/router_core_world.h"

namespace baton {
namespace {

TEST_CASE("RouterCore retries a refused request until it fits or its wait ends") {
  Cluster c({.worker_wait = absl::Seconds(2), .capacity_wait = absl::Seconds(30)});
  const absl::Duration until = GENERATE(absl::Seconds(10), absl::Seconds(100));
  REQUIRE(c.core.Submit(Ask("r", c.now + until), c.now).ok());
  Take(c.core);
  c.core.Failed(kP, "r", {absl::ResourceExhaustedError("full"), absl::Milliseconds(300)}, c.now);
  CHECK(Take(c.core).empty());
  CHECK(c.core.waiting_requests() == 1);
  CHECK(c.core.NextTick() == c.now + absl::Milliseconds(300));
  c.core.Tick(c.now + absl::Milliseconds(300));
  CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  SECTION("the request fits when it is tried again") {
    CHECK(c.core.PrefillDone(kP, "r", Incarnation(22), c.now));
    CHECK(Take(c.core) == Lines{"decode r decode-1"});
  }
  SECTION("the request never fits") {
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

TEST_CASE("RouterCore tries another worker when a prefill-only request is refused") {
  Cluster c;
  const RouterCore::Failure full = Full(absl::Milliseconds(50), /*at_decode=*/false);
  RouteRequest request = Ask("r");
  request.prefill_only = true;
  REQUIRE(c.core.Submit(request, c.now).ok());
  Take(c.core);
  SECTION("another prefill worker is attached") {
    c.core.WorkerAttached("prefill-2", Info(WorkerRole::kPrefill, "prefill-2", 12), c.now);
    c.core.Failed(kP, "r", full, c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-2 "});
  }
  SECTION("the only prefill worker has room after its retry delay") {
    c.core.Failed(kP, "r", full, c.now);
    CHECK(Take(c.core).empty());
    c.core.Tick(c.now + absl::Milliseconds(50));
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 "});
  }
  SECTION("a new worker replaces the draining worker") {
    c.core.WorkerLoaded(kP, {.draining = true});
    c.core.Failed(kP, "r", full, c.now);
    c.core.WorkerLost(kP, c.now);
    c.core.Tick(c.now + absl::Seconds(20));
    CHECK(Take(c.core).empty());
    c.core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP, 13), c.now + absl::Seconds(20));
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 "});
  }
}

TEST_CASE("RouterCore waits for the successor of a draining worker that refuses") {
  Cluster c({.worker_wait = absl::Seconds(2),
             .restart_wait = absl::Seconds(30),
             .capacity_wait = absl::Seconds(30),
             .watch = {.silence = absl::ZeroDuration()}});
  const bool decode = GENERATE(true, false);
  const char* link = decode ? kD : kP;
  c.core.WorkerLoaded(link, {.draining = true});
  const std::vector<std::string> ids = {"r1", "r2"};
  for (const std::string& id : ids) REQUIRE(c.core.Submit(Ask(id), c.now).ok());
  const auto refuse_all = [&] {
    for (const std::string& line : Take(c.core)) {
      INFO(line);
      REQUIRE(line.starts_with("prefill"));
      c.core.Failed(kP, line.substr(8, 2), Full(absl::Seconds(1), /*at_decode=*/decode), c.now);
    }
  };
  refuse_all();
  for (int tenths = 0; tenths < 900; ++tenths) {
    c.core.Tick(c.now += absl::Milliseconds(100));
    refuse_all();
  }
  c.core.WorkerLost(link, c.now);
  for (int tenths = 0; tenths < 200; ++tenths) c.core.Tick(c.now += absl::Milliseconds(100));
  CHECK(Take(c.core).empty());
  c.core.WorkerAttached(link, decode ? Info(WorkerRole::kDecode, kD, 23) : Info(WorkerRole::kPrefill, kP, 13), c.now);
  Lines lines = Take(c.core);
  std::ranges::sort(lines);
  CHECK(lines == Lines{"prefill r1 prefill-1 decode-1", "prefill r2 prefill-1 decode-1"});
}

TEST_CASE("RouterCore places a session elsewhere at once when its decode worker is full") {
  Cluster c;
  RouteRequest turn = Ask("turn 1");
  turn.session = std::string("s");
  REQUIRE(c.core.Submit(turn, c.now).ok());
  Take(c.core);
  c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 33), c.now);
  turn.id = std::string("turn 2");
  REQUIRE(c.core.Submit(turn, c.now).ok());
  CHECK(Take(c.core) == Lines{"prefill turn 2 prefill-1 decode-1"});
  SECTION("the decode worker refuses the hand-off") { c.core.Failed(kP, "turn 2", Full(), c.now); }
  SECTION("the decode worker refuses the request's start") {
    REQUIRE(c.core.PrefillDone(kP, "turn 2", Incarnation(22), c.now));
    Take(c.core);
    c.core.Failed(kD, "turn 2", Full(), c.now);
  }
  CHECK(Take(c.core) == Lines{"prefill turn 2 prefill-1 decode-2"});
  // The session asks its home again, where every router expects it.
  turn.id = std::string("turn 3");
  REQUIRE(c.core.Submit(turn, c.now).ok());
  CHECK(Take(c.core) == Lines{"prefill turn 3 prefill-1 decode-1"});
}

TEST_CASE("RouterCore asks the decode worker whose retry delay ends first when all refused") {
  Cluster c;
  c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 33), c.now);
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  const std::string first = c.core.TakeActions()[0].decode_worker;
  c.core.Failed(kP, "r", Full(absl::Milliseconds(300)), c.now);
  const auto second = c.core.TakeActions();
  REQUIRE(second.size() == 1);
  CHECK(second[0].decode_worker != first);
  c.core.Failed(kP, "r", Full(absl::Milliseconds(100)), c.now);
  CHECK(Take(c.core).empty());
  CHECK(c.core.waiting_requests() == 1);
  CHECK(c.core.NextTick() == c.now + absl::Milliseconds(100));
  SECTION("the first retry delay ends") {
    c.core.Tick(c.now + absl::Milliseconds(100));
    CHECK(Take(c.core) == Lines{absl::StrCat("prefill r prefill-1 ", second[0].decode_worker)});
  }
  SECTION("a third worker attaches before the first retry delay ends") {
    c.core.WorkerAttached("decode-3", Info(WorkerRole::kDecode, "decode-3", 44), c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-3"});
  }
  SECTION("the worker is lost, and the retry delay of the other worker ends") {
    c.core.WorkerLost(second[0].decode_worker, c.now);
    c.core.Tick(c.now + absl::Milliseconds(100));
    CHECK(Take(c.core).empty());
    c.core.Tick(c.now + absl::Milliseconds(300));
    CHECK(Take(c.core) == Lines{absl::StrCat("prefill r prefill-1 ", first)});
  }
  SECTION("all decode workers are lost") {
    c.core.WorkerLost(kD, c.now);
    c.core.WorkerLost("decode-2", c.now);
    for (absl::Time t = c.now; t < c.now + absl::Seconds(5); t += absl::Milliseconds(50)) c.core.Tick(t);
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
}

TEST_CASE("RouterCore lets waiting requests ask by priority and queue order") {
  Cluster c;
  const auto refuse = [&](const std::string& id, int32_t priority, absl::Duration order, absl::Duration hint) {
    RouteRequest request = Ask(id);
    request.priority = priority;
    request.queue_order = c.now + order;
    REQUIRE(c.core.Submit(request, c.now).ok());
    c.core.Failed(kP, id, Full(hint), c.now);
    Take(c.core);
  };
  refuse("late", 0, absl::Seconds(2), absl::Milliseconds(100));
  refuse("early", 0, absl::Seconds(1), absl::Milliseconds(200));
  refuse("urgent", 1, absl::Seconds(3), absl::Milliseconds(300));
  REQUIRE(c.core.waiting_requests() == 3);
  const auto asks = [](const std::string& id) { return absl::StrCat("prefill ", id, " prefill-1 decode-1"); };
  SECTION("the retry delays end one after the other") {
    for (const std::string id : {"urgent", "early", "late"}) {
      CHECK(Take(c.core).empty());
      c.core.Tick(c.now += absl::Milliseconds(100));
      CHECK(Take(c.core) == Lines{asks(id)});
    }
  }
  SECTION("all retry delays end in one tick") {
    c.core.Tick(c.now + absl::Milliseconds(300));
    CHECK(Take(c.core) == Lines{asks("urgent"), asks("early"), asks("late")});
  }
  SECTION("a request that is refused again waits for another retry delay") {
    c.core.Tick(c.now += absl::Milliseconds(100));
    CHECK(Take(c.core) == Lines{asks("urgent")});
    c.core.Failed(kP, "urgent", Full(absl::Milliseconds(250)), c.now);
    c.core.Tick(c.now += absl::Milliseconds(100));
    CHECK(Take(c.core) == Lines{asks("urgent")});
    c.core.Tick(c.now += absl::Milliseconds(100));
    CHECK(Take(c.core) == Lines{asks("early")});
  }
  SECTION("a request that waits for another worker does not ask") {
    WorkerInfo other = Info(WorkerRole::kDecode, "decode-2", 33);
    other.model = "n";
    c.core.WorkerAttached("decode-2", other, c.now);
    RouteRequest request = Ask("other");
    request.model = "n";
    request.priority = 9;
    REQUIRE(c.core.Submit(request, c.now).ok());
    c.core.Failed(kP, "other", Full(absl::Milliseconds(500)), c.now);
    Take(c.core);
    c.core.Tick(c.now += absl::Milliseconds(100));
    CHECK(Take(c.core) == Lines{asks("urgent")});
  }
}

TEST_CASE("RouterCore alternates between tenants when a worker is asked again") {
  Cluster c;
  absl::Duration hint;
  for (const std::string id : {"a1", "a2", "a3", "b1"}) {
    RouteRequest request = Ask(id);
    request.tenant = id.substr(0, 1);
    request.priority = id == "a2" ? 1000 : 0;
    REQUIRE(c.core.Submit(request, c.now).ok());
    c.core.Failed(kP, id, Full(hint += absl::Milliseconds(100)), c.now);
    Take(c.core);
  }
  const auto asks = [](const std::string& id) { return absl::StrCat("prefill ", id, " prefill-1 decode-1"); };
  SECTION("all retry delays end in one tick") {
    c.core.Tick(c.now + absl::Milliseconds(400));
    CHECK(Take(c.core) == Lines{asks("a2"), asks("b1"), asks("a1"), asks("a3")});
  }
  SECTION("a request that is refused again counts for its tenant") {
    for (const std::string id : {"a2", "b1", "a2", "b1"}) {
      c.core.Tick(c.now += absl::Milliseconds(100));
      CHECK(Take(c.core) == Lines{asks(id)});
      c.core.Failed(kP, id, Full(absl::Seconds(1)), c.now);
    }
  }
}

TEST_CASE("RouterCore asks a full decode worker again when it reports room") {
  Cluster c(
      {.worker_wait = absl::Seconds(2), .capacity_wait = absl::Seconds(30), .room_wait = absl::InfiniteDuration()});
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  Take(c.core);
  c.core.Failed(kP, "r", NoRoom(), c.now);
  CHECK(Take(c.core).empty());
  CHECK(c.core.NextTick() == c.now + absl::Seconds(15));  // half of the wait
  SECTION("the worker reports room") {
    c.core.OnRoom(kD, 1, c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
    c.core.Failed(kP, "r", NoRoom(), c.now);  // another router's request got the room
    CHECK(Take(c.core).empty());
    c.core.OnRoom(kD, 1, c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  }
  SECTION("the worker reports no room") {
    c.core.Tick(c.now + absl::Milliseconds(29'999));
    CHECK(Take(c.core).empty());
    c.core.Tick(c.now + absl::Seconds(30));
    CHECK(Take(c.core) == Lines{"end r RESOURCE_EXHAUSTED"});
  }
  SECTION("the worker's report is lost with the connection") {
    c.core.WorkerLost(kD, c.now);
    CHECK(Take(c.core).empty());
    c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 22), c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  }
}

TEST_CASE("RouterCore ends a request with UNAVAILABLE when a quarantine takes the room") {
  Cluster c({.worker_wait = absl::Seconds(2), .capacity_wait = absl::Seconds(30)});
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  c.core.Failed(kP, "r", NoRoom(), c.now);
  const auto end = [&](const WorkerLoad& load) {
    c.core.TakeActions();
    c.core.WorkerLoaded(kD, load);
    c.core.Tick(c.now + absl::Seconds(30));
    const std::vector<RouterAction> actions = c.core.TakeActions();
    REQUIRE(actions.size() == 1);
    return actions[0].status;
  };
  SECTION("the prompt would fit without the quarantine") {
    CHECK(
        end({.blocks_free = 1, .blocks_quarantined = 90}) ==
        absl::UnavailableError("full: 90 of the 100 KV blocks of decode-1 are in quarantine, because a prefill worker "
                               "may still write them"));
  }
  SECTION("the prompt would not fit even without the quarantine") {
    CHECK(end({.blocks_quarantined = 1}) == absl::ResourceExhaustedError("full"));
  }
  SECTION("no block is in quarantine") { CHECK(end({.blocks_free = 5}) == absl::ResourceExhaustedError("full")); }
}

TEST_CASE("RouterCore uses a report of room that overtakes a refusal") {
  Cluster c;
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  Take(c.core);
  c.core.OnRoom(kD, 5, c.now);  // a report may also be for other routers' requests
  CHECK(Take(c.core).empty());
  c.core.Failed(kP, "r", NoRoom(), c.now);
  CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  // Only one request was asking, so the report lets it ask only once.
  c.core.Failed(kP, "r", NoRoom(), c.now);
  c.core.Tick(c.now + absl::Seconds(1));
  CHECK(Take(c.core).empty());
}

TEST_CASE("RouterCore moves waiting requests on when their decode worker is lost") {
  Cluster c({.worker_wait = absl::Seconds(2), .restart_wait = absl::Seconds(30), .capacity_wait = absl::Seconds(30)});
  const bool drains = GENERATE(true, false);
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  Take(c.core);
  if (drains) c.core.WorkerLoaded(kD, {.draining = true});
  c.core.Failed(kP, "r", NoRoom(), c.now);
  c.core.WorkerLost(kD, c.now += absl::Seconds(20));
  CHECK(Take(c.core).empty());
  c.core.Tick(c.now += absl::Seconds(20));
  if (!drains) {
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
    return;
  }
  CHECK(Take(c.core).empty());
  c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 23), c.now);
  CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
}

TEST_CASE("RouterCore waits worker_wait for a worker whatever refusals came before") {
  Cluster c({.worker_wait = absl::Seconds(60),
             .restart_wait = absl::Seconds(5),
             .capacity_wait = absl::Seconds(30),
             .room_wait = absl::InfiniteDuration()});
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  Take(c.core);
  c.core.WorkerLoaded(kD, {.draining = GENERATE(true, false)});
  c.core.Failed(kP, "r", NoRoom(), c.now);
  c.core.WorkerLost(kD, c.now += absl::Seconds(20));
  c.core.Tick(c.now + absl::Seconds(59));
  CHECK(Take(c.core).empty());
  SECTION("no worker attaches") {
    c.core.Tick(c.now + absl::Seconds(60));
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
  SECTION("the worker that attaches is full") {
    c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 23), c.now += absl::Seconds(59));
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
    c.core.Failed(kP, "r", NoRoom(), c.now);
    c.core.Tick(c.now + absl::Seconds(29));
    CHECK(Take(c.core).empty());
    c.core.Tick(c.now + absl::Seconds(30));
    CHECK(Take(c.core) == Lines{"end r RESOURCE_EXHAUSTED"});
  }
}

// A cluster with two decode workers whose requests wait since UnixEpoch for room at both.
struct Starved : Cluster {
  Starved() : Cluster({.capacity_wait = absl::Seconds(30), .room_wait = absl::Seconds(2)}) {
    core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 33), now);
  }
  void Refuse(const std::string& id, const std::string& tenant = "") {
    RouteRequest request = Ask(id);
    request.tenant = tenant;
    REQUIRE(core.Submit(request, now).ok());
    for (int refusals = 0; refusals < 2; ++refusals) core.Failed(kP, id, NoRoom(), now);
    CHECK(Take(core).size() == 2);
  }
  Lines TickAfter(absl::Duration time) {
    core.Tick(now += time);
    return Take(core);
  }
};

TEST_CASE("RouterCore keeps room for the request that has waited longest at each worker") {
  Starved c;
  c.core.WorkerLoaded("decode-2", {.blocks_free = 101});
  for (const char* id : {"a", "b", "c"}) {
    c.Refuse(id);
    c.now += absl::Milliseconds(1);
  }
  CHECK(c.TickAfter(absl::Milliseconds(1996)).empty());
  CHECK(c.core.NextTick() == absl::UnixEpoch() + absl::Seconds(2));
  CHECK(c.TickAfter(absl::Milliseconds(1)) == Lines{"keep a decode-2"});
  CHECK(c.core.NextTick() == c.now + absl::Milliseconds(1));
  CHECK(c.TickAfter(absl::Milliseconds(1)) == Lines{"keep b decode-1"});
  CHECK(c.TickAfter(absl::Seconds(1)).empty());
  SECTION("the worker reports the room that it has kept") {
    c.core.OnKeptRoom(kD, "a", c.now);  // of another worker
    CHECK(Take(c.core).empty());
    c.core.OnKeptRoom("decode-2", "a", c.now);
    CHECK(Take(c.core) == Lines{"prefill a prefill-1 decode-2"});
    SECTION("the hand-off succeeds") {
      CHECK(c.core.PrefillDone(kP, "a", Incarnation(33), c.now));
      CHECK(Take(c.core) == Lines{"keep none decode-2", "decode a decode-2"});
      CHECK(c.core.NextTick() <= c.now);
      CHECK(c.TickAfter({}) == Lines{"keep c decode-2"});
    }
    SECTION("the worker refuses the hand-off") {
      c.core.Failed(kP, "a", NoRoom(), c.now);
      CHECK(Take(c.core) == Lines{"keep a decode-2"});
    }
    SECTION("the prefill worker refuses the request") {
      c.core.Failed(kP, "a", Full(absl::Milliseconds(50), /*at_decode=*/false), c.now);
      CHECK(Take(c.core) == Lines{"keep a decode-2"});
      CHECK(c.TickAfter(absl::Milliseconds(50)) == Lines{"prefill a prefill-1 decode-2"});
    }
    SECTION("the prefill worker is lost") {
      c.core.WorkerLost(kP, c.now);
      CHECK(Take(c.core) == Lines{"keep none decode-2", "cancel a decode-2"});
    }
  }
  SECTION("a report of room lets requests ask for which no other worker keeps room") {
    c.core.OnRoom("decode-2", 3, c.now);
    CHECK(Take(c.core) == Lines{"prefill a prefill-1 decode-2", "prefill c prefill-1 decode-2"});
  }
  SECTION("the request ends") {
    c.core.Cancel("a");
    CHECK(Take(c.core) == Lines{"keep none decode-2", "end a CANCELLED"});
    CHECK(c.TickAfter({}) == Lines{"keep c decode-2"});
  }
  SECTION("another worker attaches and takes the request") {
    c.core.WorkerAttached("decode-3", Info(WorkerRole::kDecode, "decode-3", 44), c.now);
    const Lines lines = Take(c.core);
    CHECK(std::ranges::count(lines, "keep none decode-2") == 1);
    CHECK(std::ranges::count(lines, "prefill a prefill-1 decode-3") == 1);
  }
  SECTION("the worker is lost") {
    c.core.WorkerLost("decode-2", c.now);
    CHECK(Take(c.core).empty());
    CHECK(c.TickAfter({}).empty());
    c.core.OnKeptRoom(kD, "b", c.now);
    CHECK(c.core.PrefillDone(kP, "b", Incarnation(22), c.now));
    Take(c.core);
    CHECK(c.TickAfter({}) == Lines{"keep a decode-1"});
  }
  SECTION("the worker shuts down") {
    c.core.WorkerLoaded("decode-2", {.draining = true});
    CHECK(c.TickAfter({}).empty());
    CHECK(c.core.rooms().kept() == 1);
  }
  CHECK(c.core.rooms().kept_total() >= 2);
}

TEST_CASE("RouterCore keeps room for tenants alternately") {
  Starved c;
  for (const std::string id : {"a1", "a2", "a3"}) c.Refuse(id, "a");
  c.Refuse("b1", "b");
  CHECK(c.TickAfter(absl::Seconds(2)).size() == 2);  // no tenant was served yet
  c.core.OnKeptRoom(kD, "a1", c.now);
  CHECK(c.core.PrefillDone(kP, "a1", Incarnation(22), c.now));
  Take(c.core);
  CHECK(c.TickAfter({}) == Lines{"keep b1 decode-1"});
}

TEST_CASE("RouterCore counts a request as late when half of its wait is over") {
  Cluster c(
      {.worker_wait = absl::Seconds(10), .capacity_wait = absl::Seconds(30), .room_wait = absl::InfiniteDuration()});
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  c.core.Failed(kP, "r", NoRoom(), c.now);
  c.core.Tick(c.now += absl::Seconds(14));
  CHECK(c.core.late_requests() == 0);
  CHECK(c.core.NextTick() == c.now + absl::Seconds(1));
  c.core.Tick(c.now += absl::Seconds(1));
  CHECK(c.core.late_requests() == 1);
  CHECK(c.core.NextTick() == c.now + absl::Seconds(15));
  c.core.OnRoom(kD, 1, c.now);
  CHECK(c.core.late_requests() == 0);
  c.core.Failed(kP, "r", NoRoom(), c.now);
  CHECK(c.core.late_requests() == 1);
  c.core.WorkerLost(kD, c.now);
  CHECK(c.core.late_requests() == 0);
  c.core.Tick(c.now += absl::Seconds(5));
  CHECK(c.core.late_requests() == 1);
  CHECK(c.core.NextTick() == c.now + absl::Seconds(5));
}

TEST_CASE("RouterCore passes unused room to a request whose refusal arrives later") {
  Cluster c;
  for (const char* id : {"b", "c"}) REQUIRE(c.core.Submit(Ask(id), c.now).ok());
  c.core.Failed(kP, "b", NoRoom(), c.now);
  Take(c.core);
  c.core.OnRoom(kD, 1, c.now);
  CHECK(Take(c.core) == Lines{"prefill b prefill-1 decode-1"});
  c.core.Cancel("b");
  c.core.Failed(kP, "c", NoRoom(), c.now);
  Take(c.core);
  REQUIRE(c.core.NextTick() <= c.now);
  c.core.Tick(c.now);
  CHECK(Take(c.core) == Lines{"prefill c prefill-1 decode-1"});
}

TEST_CASE("RouterCore lets the reported number of requests ask again") {
  Cluster c;
  for (const std::string id : {"a1", "a2", "a3", "b1"}) {
    RouteRequest request = Ask(id);
    request.tenant = id.substr(0, 1);
    request.priority = id == "a2" ? 1000 : 0;
    REQUIRE(c.core.Submit(request, c.now).ok());
    c.core.Failed(kP, id, NoRoom(), c.now);
    Take(c.core);
  }
  const auto asks = [](const std::string& id) { return absl::StrCat("prefill ", id, " prefill-1 decode-1"); };
  SECTION("a report of three lets three requests ask") {
    c.core.OnRoom(kD, 3, c.now);
    CHECK(Take(c.core) == Lines{asks("a2"), asks("b1"), asks("a1")});
    c.core.OnRoom(kD, 3, c.now);
    CHECK(Take(c.core) == Lines{asks("a3")});
  }
  SECTION("a request that is refused again stays the first of its tenant") {
    for (const std::string id : {"a2", "b1", "a2", "b1"}) {
      c.core.OnRoom(kD, 1, c.now);
      CHECK(Take(c.core) == Lines{asks(id)});
      c.core.Failed(kP, id, NoRoom(), c.now);
    }
  }
  SECTION("the first request does not use the room, and the next one asks") {
    c.core.OnRoom(kD, 1, c.now);
    CHECK(Take(c.core) == Lines{asks("a2")});
    SECTION("the first request is cancelled") { c.core.Cancel("a2"); }
    SECTION("the first request fails") { c.core.Failed(kP, "a2", {absl::InternalError("boom"), {}}, c.now); }
    Take(c.core);
    REQUIRE(c.core.NextTick() <= c.now);
    c.core.Tick(c.now);
    CHECK(Take(c.core) == Lines{asks("a1")});  // its tenant has received nothing
  }
}

TEST_CASE("RouterCore leaves out the prefill worker when it refuses, not the decode worker") {
  Cluster c;
  c.core.WorkerAttached("prefill-2", Info(WorkerRole::kPrefill, "prefill-2", 12), c.now);
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  const std::string first = c.core.TakeActions()[0].worker;
  c.core.Failed(first, "r", Full(absl::Milliseconds(50), false), c.now);
  CHECK(Take(c.core) == Lines{absl::StrCat("prefill r ", first == kP ? "prefill-2" : kP, " decode-1")});
}

TEST_CASE("RouterCore leaves out a decode worker that a prefill worker cannot reach") {
  Cluster c;
  const RouterCore::Failure lost{absl::UnavailableError("decode worker decode-1 was lost"), absl::Seconds(1), true};
  SECTION("another decode worker is attached") {
    c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 33), c.now);
    REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
    const bool first = Take(c.core) == Lines{"prefill r prefill-1 decode-1"};
    c.core.Failed(kP, "r", lost, c.now);
    CHECK(Take(c.core) == Lines{absl::StrCat("prefill r prefill-1 decode-", first ? 2 : 1)});
  }
  SECTION("the only decode worker is asked again after its retry delay") {
    REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
    Take(c.core);
    c.core.Failed(kP, "r", lost, c.now);
    CHECK(Take(c.core).empty());
    c.core.Tick(c.now += absl::Milliseconds(999));
    CHECK(Take(c.core).empty());
    c.core.Tick(c.now += absl::Milliseconds(1));
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  }
}

TEST_CASE("RouterCore ends a request when workers refuse it one after the other") {
  Cluster c({.worker_wait = absl::Seconds(2), .capacity_wait = absl::Seconds(30)});
  c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 33), c.now);
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
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

}  // namespace
}  // namespace baton
