#include "request/answers.h"
#include "request/priority.h"
#include "world/router_core_world.h"

namespace baton {
namespace {

TEST_CASE("RouterCore takes a request through prefill and decode and ends it once") {
  Cluster c;
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  CHECK(c.core.PrefillDone(kP, "r", Incarnation(22), c.now));
  CHECK(Take(c.core) == Lines{"decode r decode-1"});
  CHECK(c.core.TokensArrived(kD, "r", false));
  CHECK(c.core.TokensArrived(kD, "r", true));
  CHECK(Take(c.core) == Lines{"end r OK"});
  CHECK_FALSE(c.core.TokensArrived(kD, "r", true));
  c.core.Cancel("r");
  CHECK(Take(c.core).empty());
  CHECK(c.core.live_requests() == 0);
}

TEST_CASE("RouterCore ends a prefill-only request without a decode worker") {
  Cluster c;
  c.core.WorkerLost(kD, c.now);
  RouteRequest request = Ask("r");
  request.prefill_only = true;
  REQUIRE(c.core.Submit(request, c.now).ok());
  CHECK(Take(c.core) == Lines{"prefill r prefill-1 "});
  CHECK(c.core.PrefillDone(kP, "r", Incarnation(), c.now));
  CHECK(Take(c.core) == Lines{"end r OK"});
}

TEST_CASE("RouterCore cancels a request at every worker that may hold its KV") {
  Cluster c;
  SECTION("the request is prefilling") {
    Bring(c, Stage::kPrefilling);
    c.core.Cancel("r");
    CHECK(Take(c.core) == Lines{"cancel r prefill-1", "cancel r decode-1", "end r CANCELLED"});
    // The commit was already under way. The core frees the decode worker's blocks.
    CHECK_FALSE(c.core.PrefillDone(kP, "r", Incarnation(22), c.now));
    CHECK(Take(c.core) == Lines{"cancel r decode-1"});
  }
  SECTION("the request is starting") {
    Bring(c, Stage::kStarting);
    c.core.Cancel("r");
    CHECK(Take(c.core) == Lines{"cancel r decode-1", "end r CANCELLED"});
  }
  SECTION("the request is decoding") {
    Bring(c, Stage::kDecoding);
    c.core.Cancel("r");
    CHECK(Take(c.core) == Lines{"cancel r decode-1", "end r CANCELLED"});
    CHECK_FALSE(c.core.TokensArrived(kD, "r", false));
  }
  SECTION("the request waits for a worker") {
    c.core.WorkerLost(kP, c.now);
    REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
    c.core.Cancel("r");
    CHECK(Take(c.core) == Lines{"end r CANCELLED"});
  }
}

TEST_CASE("RouterCore ends a request at its deadline in every state") {
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

TEST_CASE("RouterCore places a prompt again when its prefill worker is lost") {
  Cluster c;
  Bring(c, Stage::kPrefilling);
  SECTION("another worker is attached") {
    c.core.WorkerAttached("prefill-2", Info(WorkerRole::kPrefill, "prefill-2", 12), c.now);
    c.core.WorkerLost(kP, c.now);
    CHECK(Take(c.core) == Lines{"cancel r decode-1", "prefill r prefill-2 decode-1"});
    SECTION("the other worker prefills the prompt") {
      CHECK(c.core.PrefillDone("prefill-2", "r", Incarnation(22), c.now));
      CHECK(Take(c.core) == Lines{"decode r decode-1"});
    }
    SECTION("it fails after three workers that ran it, because it may be the cause") {
      const bool runs = GENERATE(true, false);
      for (uint64_t restart = 1; restart <= 3; ++restart) {
        if (runs) c.core.StepStarted("r");
        c.core.WorkerLost("prefill-2", c.now);
        CHECK(Take(c.core) ==
              (runs && restart == 3 ? Lines{"cancel r decode-1", "end r INTERNAL"} : Lines{"cancel r decode-1"}));
        c.core.WorkerAttached("prefill-2", Info(WorkerRole::kPrefill, "prefill-2", 20 + restart), c.now);
        Take(c.core);
      }
    }
  }
  SECTION("the lost worker attaches again soon") {
    c.core.WorkerLost(kP, c.now);
    CHECK(Take(c.core) == Lines{"cancel r decode-1"});
    c.core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP, 13), c.now + absl::Seconds(1));
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  }
  SECTION("no worker attaches soon") {
    c.core.WorkerLost(kP, c.now);
    CHECK(Take(c.core) == Lines{"cancel r decode-1"});
    c.core.Tick(c.now + absl::Seconds(2));
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
  SECTION("the deadline passes before a worker attaches") {
    c.core.EndBy("r", c.now + absl::Seconds(1));
    c.core.WorkerLost(kP, c.now);
    CHECK(Take(c.core) == Lines{"cancel r decode-1"});
    c.core.Tick(c.now + absl::Seconds(1));
    CHECK(Take(c.core) == Lines{"end r DEADLINE_EXCEEDED"});
  }
}

TEST_CASE("RouterCore places a request again when its decode worker is lost early") {
  Cluster c;
  const Stage stage = GENERATE(Stage::kPrefilling, Stage::kStarting);
  Bring(c, stage);
  const Lines cancelled = stage == Stage::kPrefilling ? Lines{"cancel r prefill-1"} : Lines{};
  c.core.WorkerLost(kD, c.now);
  CHECK(Take(c.core) == cancelled);
  SECTION("the lost worker attaches again soon") {
    c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 23), c.now + absl::Seconds(1));
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
    CHECK(c.core.PrefillDone(kP, "r", Incarnation(23), c.now));
    Take(c.core);
    SECTION("the worker serves the request") {
      CHECK(c.core.TokensArrived(kD, "r", true));
      CHECK(Take(c.core) == Lines{"end r OK"});
    }
    SECTION("it fails after three workers that ran it, because it may be the cause") {
      // No step of the first worker had the request.
      const int more = 3;
      for (int restart = 1; restart <= more; ++restart) {
        c.core.StepStarted("r");
        c.core.WorkerLost(kD, c.now);
        CHECK(Take(c.core) == (restart == more ? Lines{"end r INTERNAL"} : Lines{}));
        if (restart == more) return;
        c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 23), c.now);
        REQUIRE(c.core.PrefillDone(kP, "r", Incarnation(23), c.now));
        Take(c.core);
      }
    }
  }
  SECTION("no worker attaches soon") {
    c.core.Tick(c.now + absl::Seconds(2));
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
}

TEST_CASE("RouterCore places a request again whenever a draining worker gives it up") {
  Cluster c({.restart_wait = absl::Seconds(18), .capacity_wait = absl::Seconds(12)});
  const Stage stage = GENERATE(Stage::kPrefilling, Stage::kStarting);
  const WorkerAddress link = stage == Stage::kPrefilling ? kP : kD;
  const WorkerInfo info = c.core.workers().at(link).info;
  Bring(c, stage);
  const RouterCore::Failure shut_down{absl::UnavailableError("the worker was shut down")};
  for (int restart = 0; restart < 3; ++restart) {
    c.core.WorkerLoaded(link, {.draining = true});
    c.core.Failed(link, "r", shut_down, c.now);
    Take(c.core);
    CHECK(c.core.live_requests() == 1);
    c.core.WorkerLost(link, c.now);
    for (const int after : {1, 17}) c.core.Tick(c.now + absl::Seconds(after));
    CHECK(c.core.live_requests() == 1);
    c.core.WorkerAttached(link, info, c.now += absl::Seconds(17));
    CHECK(Take(c.core).back() == "prefill r prefill-1 decode-1");
    if (stage == Stage::kStarting) REQUIRE(c.core.PrefillDone(kP, "r", Incarnation(22), c.now));
  }
  c.core.Cancel("r");
}

TEST_CASE("RouterCore counts only unannounced losses of workers as attempts") {
  Cluster c;
  Bring(c, Stage::kPrefilling);
  int placed = 0;
  for (const bool draining : {true, false, true, false, true, false}) {
    c.core.StepStarted("r");
    c.core.WorkerLoaded(kP, {.draining = draining});
    c.core.WorkerLost(kP, c.now);
    Take(c.core);
    c.core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP, 11), c.now);
    placed += Take(c.core) == Lines{"prefill r prefill-1 decode-1"};
  }
  CHECK(placed == 5);
  CHECK(c.core.live_requests() == 0);
}

TEST_CASE("RouterCore refuses a request after worker_wait") {
  Cluster c({.waiting_requests = 1, .worker_wait = absl::Seconds(2)});
  c.core.WorkerLost(kD, c.now);
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  CHECK(Take(c.core).empty());
  CHECK(absl::IsResourceExhausted(c.core.Submit(Ask("too many"), c.now)));
  SECTION("a worker attaches in time") {
    c.core.Tick(c.now + absl::Seconds(1));
    c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 23), c.now + absl::Seconds(1));
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  }
  SECTION("no worker attaches in time") {
    c.core.Tick(c.now + absl::Seconds(2));
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
  SECTION("a worker of another module attaches") {
    WorkerInfo other = Info(WorkerRole::kDecode, kD);
    other.module_digest[0] = 1;
    c.core.WorkerAttached(kD, other, c.now);
    CHECK(Take(c.core).empty());
    CHECK(absl::IsUnavailable(c.core.registry().Readiness("m", false)));
  }
}

TEST_CASE("RouterCore waits restart_wait for a worker that drained") {
  Cluster c({.worker_wait = absl::Seconds(2), .restart_wait = absl::Seconds(30)});
  const WorkerAddress link = GENERATE(WorkerAddress(kP), WorkerAddress(kD));
  const WorkerInfo info = c.core.workers().at(link).info;
  c.core.WorkerLoaded(link, {.draining = true});
  c.core.WorkerLost(link, c.now);
  CHECK(absl::IsUnavailable(c.core.registry().Readiness("m", false)));
  CHECK(c.core.registry().AwaitedUntil("m", false) == c.now + absl::Seconds(30));
  CHECK(c.core.registry().AwaitedUntil("another", false) == absl::InfinitePast());
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  SECTION("the drained worker attaches again") {
    c.core.Tick(c.now + absl::Seconds(29));
    c.core.WorkerAttached(link, info, c.now + absl::Seconds(29));
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
    CHECK(c.core.registry().AwaitedUntil("m", false) == absl::InfinitePast());
  }
  SECTION("another worker attaches instead") {
    c.core.WorkerAttached("elsewhere", info, c.now + absl::Seconds(29));
    CHECK(Take(c.core).size() == 1);
  }
  SECTION("no worker attaches") {
    c.core.Tick(c.now + absl::Seconds(29));
    CHECK(Take(c.core).empty());
    c.core.Tick(c.now + absl::Seconds(30));
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
    c.now += absl::Seconds(30);
    REQUIRE(c.core.Submit(Ask("later"), c.now).ok());
    c.core.Tick(c.now + absl::Seconds(2));
    CHECK(Take(c.core) == Lines{"end later UNAVAILABLE"});
  }
}

TEST_CASE("RouterCore awaits a drained worker only when the request lacks one") {
  Cluster c({.worker_wait = absl::Seconds(2), .restart_wait = absl::Seconds(30)});
  c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 33), c.now);
  c.core.WorkerLoaded("decode-2", {.draining = true});
  c.core.WorkerLost("decode-2", c.now);
  // Workers of both kinds remain.
  CHECK(c.core.registry().AwaitedUntil("m", false) == absl::InfinitePast());
  c.core.WorkerLost(kP, c.now);
  CHECK(c.core.registry().AwaitedUntil("m", false) == absl::InfinitePast());
  c.core.WorkerLost(kD, c.now);
  // No prefill worker is awaited.
  CHECK(c.core.registry().AwaitedUntil("m", false) == absl::InfinitePast());
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  c.core.Tick(c.now + absl::Seconds(2));
  CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
}

TEST_CASE("RouterCore ends a low-priority request when no worker takes it") {
  Cluster c;
  RouteRequest low_priority = Ask("b");
  low_priority.priority = kLowPriority;
  low_priority.prefill_only = true;
  REQUIRE(c.core.Submit(low_priority, c.now).ok());
  Take(c.core);
  c.core.WorkerLost(kP, c.now);
  CHECK(Take(c.core) == Lines{"end b UNAVAILABLE"});
}

TEST_CASE("WorkerRegistry refuses other weights while a model is served") {
  Cluster c;
  c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 33), c.now);
  WorkerInfo retuned = Info(WorkerRole::kDecode, "decode-3", 44);
  retuned.weights_digest[31] = 0xab;
  const absl::Status refused = c.core.registry().MayAttach(retuned);
  CHECK(absl::IsFailedPrecondition(refused));
  for (const char* part : {"model 'm'", "0000ab at decode-3", "000000 at decode-1"}) {
    INFO(part << " in " << refused);
    CHECK(refused.message().find(part) != absl::string_view::npos);
  }
  WorkerInfo elsewhere = retuned;
  elsewhere.model = std::string("n");
  CHECK(c.core.registry().MayAttach(elsewhere).ok());
  c.core.WorkerLost(kD, c.now);
  CHECK_FALSE(c.core.registry().MayAttach(retuned).ok());
  c.core.WorkerLoaded("decode-2", {.draining = true});
  CHECK(c.core.registry().MayAttach(retuned).ok());  // decode-2 accepts no new requests
  c.core.WorkerLost("decode-2", c.now);
  CHECK(c.core.registry().MayAttach(retuned).ok());
  c.core.WorkerAttached("decode-3", retuned, c.now);
  CHECK_FALSE(c.core.registry().MayAttach(Info(WorkerRole::kDecode, kD, 22)).ok());
}

TEST_CASE("WorkerRegistry refuses a decode worker with another prefill module") {
  Cluster c;
  WorkerInfo moved = Info(WorkerRole::kDecode, "decode-2", 33);
  moved.module_digest[31] = 0xcd;
  const absl::Status refused = c.core.registry().MayAttach(moved);
  CHECK(absl::IsFailedPrecondition(refused));
  for (const char* part : {"model 'm'", "prefill module", "0000cd at decode-2", "000000 at decode-1"}) {
    INFO(part << " in " << refused);
    CHECK(refused.message().find(part) != absl::string_view::npos);
  }
  WorkerInfo elsewhere = moved;
  elsewhere.model = std::string("n");
  CHECK(c.core.registry().MayAttach(elsewhere).ok());

  // A model name moves from one module to another as the old workers leave.
  WorkerInfo module = Info(WorkerRole::kPrefill, "prefill-2", 44);
  module.module_digest = moved.module_digest;
  // No decode worker uses its KV yet.
  REQUIRE(c.core.registry().MayAttach(module).ok());
  c.core.WorkerAttached("prefill-2", module, c.now);
  c.core.WorkerLoaded(kD, {.draining = true});
  REQUIRE(c.core.registry().MayAttach(moved).ok());
  c.core.WorkerAttached("decode-2", moved, c.now);
  CHECK_FALSE(c.core.registry().MayAttach(Info(WorkerRole::kDecode, "decode-3", 55)).ok());
  c.core.WorkerLost(kD, c.now);
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  CHECK(Take(c.core) == Lines{"prefill r prefill-2 decode-2"});
}

TEST_CASE("RouterCore ends a request with the worker's status on other failures") {
  Cluster c;
  Bring(c, Stage::kDecoding);
  c.core.Failed(kP, "r", {absl::InternalError("not its request any more"), absl::ZeroDuration()}, c.now);
  CHECK(Take(c.core).empty());
  c.core.Failed(kD, "r", {absl::InternalError("boom"), absl::ZeroDuration()}, c.now);
  const auto actions = c.core.TakeActions();
  REQUIRE(actions.size() == 1);
  CHECK(actions[0].status.message() == "boom");
}

TEST_CASE("RouterCore places higher priorities first when a worker attaches") {
  Cluster c;
  c.core.WorkerLost(kP, c.now);
  for (int priority : {0, 5, -3, 5}) {
    RouteRequest request = Ask(absl::StrCat("p", priority, c.core.waiting_requests()));
    request.priority = priority;
    REQUIRE(c.core.Submit(request, c.now).ok());
  }
  c.core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP), c.now);
  CHECK(Take(c.core) == Lines{"prefill p51 prefill-1 decode-1", "prefill p53 prefill-1 decode-1",
                              "prefill p00 prefill-1 decode-1", "prefill p-32 prefill-1 decode-1"});
}

TEST_CASE("RouterCore places equal priorities by queue order, then by submission") {
  Cluster c;
  c.core.WorkerLost(kP, c.now);
  const auto submit = [&](const std::string& id, int order, int32_t priority) {
    RouteRequest request = Ask(id);
    request.queue_order = c.now + absl::Seconds(order);
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

TEST_CASE("RouterCore counts uncached tokens at the worker with most of the prompt") {
  Cluster c;
  c.core.WorkerAttached("prefill-2", Info(WorkerRole::kPrefill, "prefill-2", 12), c.now);
  RouteRequest request = Ask("r");
  request.prompt_tokens = 40;
  request.keys.resize(2);
  request.keys[1].bytes[0] = 1;
  CHECK(c.core.FewestUncached(request) == 40);
  REQUIRE(c.core.Submit(request, c.now).ok());
  CHECK(c.core.FewestUncached(request) == 8);
}

TEST_CASE("RouterCore counts no cached blocks for failed or cancelled prompts") {
  Cluster c;
  RouteRequest request = Ask("r");
  request.prompt_tokens = 40;
  request.keys.resize(2);
  request.keys[1].bytes[0] = 1;
  REQUIRE(c.core.Submit(request, c.now).ok());
  CHECK(c.core.FewestUncached(request) == 8);  // for other requests in the meantime
  SECTION("the request is cancelled") { c.core.Cancel("r"); }
  SECTION("the request fails") { c.core.Failed(kP, "r", {absl::InternalError("boom"), absl::ZeroDuration()}, c.now); }
  SECTION("the worker refuses the request") {
    c.core.Failed(kP, "r", {absl::ResourceExhaustedError("full"), absl::Seconds(1)}, c.now);
  }
  SECTION("the request's deadline passes") {
    c.core.EndBy("r", c.now + absl::Seconds(1));
    c.core.Tick(c.now + absl::Seconds(1));
  }
  CHECK(c.core.FewestUncached(request) == 40);
  c.core.CheckInvariants();
}

TEST_CASE("PrefixMemory holds no more blocks than the worker and its staging tiers") {
  Cluster c;
  WorkerInfo small = Info(WorkerRole::kPrefill, "prefill-2", 12);
  small.blocks_total = 3;
  small.staging_blocks = 2;
  c.core.WorkerAttached("prefill-2", small, c.now);
  RouteRequest request = Ask("r");
  request.prompt_tokens = 160;
  request.keys.resize(10);
  for (uint8_t i = 0; i < 10; ++i) request.keys[i].bytes[0] = i;
  c.core.Remember("prefill-2", request.keys);
  CHECK(c.core.FewestUncached(request) == 80);
  c.core.Remember(kP, request.keys);
  CHECK(c.core.FewestUncached(request) == 0);
}

TEST_CASE("RouterCore refuses too many requests and past deadlines") {
  Cluster c({.live_requests = 1});
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  CHECK(absl::IsResourceExhausted(c.core.Submit(Ask("s"), c.now)));
  c.core.Cancel("r");
  Take(c.core);
  REQUIRE(c.core.Submit(Ask("late", c.now), c.now).ok());
  CHECK(Take(c.core) == Lines{"end late DEADLINE_EXCEEDED"});
}

TEST_CASE("RouterCore refuses a tenant that has more live requests than slots are free") {
  Cluster c({.live_requests = 8});
  int made = 0;
  const auto submit = [&](const std::string& tenant, int32_t priority = 0) {
    RouteRequest request = Ask(absl::StrCat(tenant, made++));
    request.tenant = tenant;
    request.priority = priority;
    return c.core.Submit(request, c.now);
  };
  const auto fill = [&](const std::string& tenant) {
    int live = 0;
    while (submit(tenant).ok()) ++live;
    Take(c.core);
    return live;
  };
  SECTION("later tenants get fewer slots, but at least one") {
    CHECK(fill("a") == 5);
    const absl::Status refused = submit("a");
    CHECK(absl::IsResourceExhausted(refused));
    CHECK(refused.message() ==
          "overloaded: tenant 'a' has 5 live requests, and 3 of the router's 8 request slots are free; a tenant with "
          "more live requests than free slots may not add one");
    CHECK(fill("b") == 2);
    CHECK(fill("c") == 1);
    CHECK(submit("d").message() == "overloaded: 8 live requests, limit 8 (--max-requests)");
    c.core.Cancel("a0");
    c.core.Cancel("a1");
    CHECK(fill("d") == 2);
  }
  SECTION("low-priority jobs do not count as live requests of their tenant") {
    for (int i = 0; i < 4; ++i) REQUIRE(submit("a", kLowPriority).ok());
    CHECK(fill("a") == 3);
    CHECK(fill("b") == 1);
  }
  SECTION("requests without a tenant have only the router's limit") { CHECK(fill("") == 8); }
  c.core.EndAll();
  Take(c.core);
  CHECK(fill("b") == 5);
}

TEST_CASE("RouterCore refuses a tenant that has more waiting requests than slots are free") {
  Cluster c({.waiting_requests = 4});
  const auto submit = [&](const std::string& id) {
    RouteRequest request = Ask(id);
    request.tenant = id.substr(0, 1);
    return c.core.Submit(request, c.now);
  };
  const bool refused = GENERATE(false, true);  // false: no worker is attached
  if (!refused) c.core.WorkerLost(kP, c.now);
  const auto waits = [&](const std::string& id) {
    const absl::Status status = submit(id);
    if (refused) {
      REQUIRE(status.ok());
      c.core.Failed(kP, id, Full(), c.now);
      const Lines lines = Take(c.core);
      return lines.size() == 1;  // its first placement, and no end
    }
    CHECK((status.ok() || absl::IsResourceExhausted(status)));
    return status.ok();
  };
  CHECK(waits("a1"));
  CHECK(waits("a2"));
  CHECK(waits("a3"));
  CHECK_FALSE(waits("a4"));
  CHECK(waits("b1"));
  CHECK_FALSE(waits("c1"));
}

TEST_CASE("RouterCore alternates between tenants when a worker attaches") {
  Cluster c;
  c.core.WorkerLost(kP, c.now);
  const auto submit = [&](const std::string& id, int32_t priority) {
    RouteRequest request = Ask(id);
    request.tenant = id.substr(0, 1);
    request.priority = priority;
    REQUIRE(c.core.Submit(request, c.now).ok());
  };
  submit("a1", 0);
  submit("a2", 0);
  submit("a3", 5);
  submit("b1", -5);
  c.core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP), c.now);
  CHECK(Take(c.core) == Lines{"prefill a3 prefill-1 decode-1", "prefill b1 prefill-1 decode-1",
                              "prefill a1 prefill-1 decode-1", "prefill a2 prefill-1 decode-1"});
}

TEST_CASE("RouterCore places a session's requests on one decode worker") {
  Cluster c;
  c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 33), c.now);
  std::string first;
  for (int turn = 0; turn < 6; ++turn) {
    RouteRequest request = Ask(absl::StrCat("turn", turn));
    request.session = std::string("s");
    REQUIRE(c.core.Submit(request, c.now).ok());
    const auto actions = c.core.TakeActions();
    REQUIRE(actions.size() == 1);
    if (turn == 0) first = actions[0].decode_worker;
    CHECK(actions[0].decode_worker == first);
  }
}

TEST_CASE("RouterCore ends all requests at shutdown") {
  Cluster c;
  Bring(c, Stage::kDecoding);
  REQUIRE(c.core.Submit(Ask("s"), c.now).ok());
  Take(c.core);
  c.core.EndAll();
  CHECK(Take(c.core) == Lines{"cancel r decode-1", "end r UNAVAILABLE", "cancel s prefill-1", "cancel s decode-1",
                              "end s UNAVAILABLE"});
}

}  // namespace
}  // namespace baton
