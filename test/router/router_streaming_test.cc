// Tests of streaming prompts in the router core.
#include <map>

#include "world/router_core_world.h"

namespace baton {
namespace {

TEST_CASE("RouterCore assigns a decode worker when a streaming prompt is complete") {
  Cluster c;
  REQUIRE(c.core.Submit(OpenRequest("r"), c.now).ok());
  CHECK(Take(c.core) == Lines{"open r prefill-1 decode-1"});
  c.core.Grew("r", 16);
  CHECK(Take(c.core) == Lines{"append r prefill-1"});
  CHECK(c.core.workers().at(kP).prompt_tokens == 16);
  CHECK(c.core.workers().at(kD).requests.empty());
  c.core.Closed("r", 30, 10, c.now);
  CHECK(Take(c.core) == Lines{"close r prefill-1 decode-1"});
  CHECK(c.core.PrefillDone(kP, "r", Incarnation(22), c.now));
  CHECK(Take(c.core) == Lines{"decode r decode-1"});
  CHECK(c.core.workers().at(kP).prompt_tokens == 0);
}

TEST_CASE("RouterCore spreads streaming prompts over their expected decode workers") {
  Cluster c;
  c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 23), c.now);
  std::map<WorkerAddress, Lines> at;
  for (const char* id : {"r", "s", "t", "u"}) {
    REQUIRE(c.core.Submit(OpenRequest(id), c.now).ok());
    c.core.CheckInvariants();
    at[c.core.TakeActions().back().decode_worker].push_back(id);
  }
  CHECK(at[kD].size() == 2);
  CHECK(at["decode-2"].size() == 2);
  const Lines there = at["decode-2"], here = at[kD];
  c.core.Closed(there[0], 30, 10, c.now);
  CHECK(Take(c.core) == Lines{absl::StrCat("close ", there[0], " prefill-1 decode-2")});
  SECTION("the expected decode worker is lost") {
    c.core.WorkerLost("decode-2", c.now);
    Take(c.core);
    c.core.Closed(there[1], 30, 10, c.now);
    CHECK(Take(c.core) == Lines{absl::StrCat("close ", there[1], " prefill-1 decode-1")});
  }
  SECTION("the expected decode worker is full") {
    c.core.WorkerLoaded("decode-2", {.running_requests = 8, .blocks_free = 50});
    c.core.Closed(there[1], 30, 10, c.now);
    CHECK(Take(c.core) == Lines{absl::StrCat("close ", there[1], " prefill-1 decode-1")});
  }
  SECTION("prompts that have ended or closed are not expected") {
    c.core.Cancel(there[1]);
    for (const std::string& id : here) c.core.Closed(id, 30, 10, c.now);
    Take(c.core);
    CHECK(c.core.workers().at(kD).expected.empty());
    CHECK(c.core.workers().at("decode-2").expected.empty());
  }
}

TEST_CASE("RouterCore sends a waiting streaming prompt when a worker attaches") {
  Cluster c;
  c.core.WorkerLost(kP, c.now);
  REQUIRE(c.core.Submit(OpenRequest("r"), c.now).ok());
  REQUIRE(c.core.Submit(OpenRequest("s"), c.now).ok());
  c.core.Grew("r", 16);
  c.core.Closed("s", 5, 10, c.now);
  CHECK(Take(c.core).empty());
  c.core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP, 12), c.now);
  CHECK(Take(c.core) == Lines{"open r prefill-1 decode-1", "prefill s prefill-1 decode-1"});
}

TEST_CASE("RouterCore ends a streaming prompt with its worker, client, deadline or error") {
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

TEST_CASE("RouterCore places a streaming prompt again when its worker is lost") {
  Cluster c;
  REQUIRE(c.core.Submit(OpenRequest("r"), c.now).ok());
  c.core.Grew("r", 32);
  Take(c.core);
  c.core.WorkerLost(kP, c.now);
  CHECK(Take(c.core).empty());
  c.core.WorkerAttached(kP, Info(WorkerRole::kPrefill, kP, 12), c.now);
  CHECK(Take(c.core) == Lines{"open r prefill-1 decode-1"});
  CHECK(c.core.workers().at(kP).prompt_tokens == 32);
  c.core.WorkerLost(kP, c.now);
  c.core.Tick(c.now + absl::Seconds(5));
  CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
}

TEST_CASE("RouterCore makes a complete prompt wait when no decode worker is left") {
  Cluster c;
  REQUIRE(c.core.Submit(OpenRequest("r"), c.now).ok());
  const bool restarts = GENERATE(true, false);
  c.core.WorkerLoaded(kD, {.draining = restarts});
  c.core.WorkerLost(kD, c.now);
  Take(c.core);
  c.core.Closed("r", 30, 10, c.now);
  CHECK(Take(c.core) == Lines{"cancel r prefill-1"});
  c.core.Tick(c.now += absl::Seconds(20));
  if (restarts) {
    CHECK(Take(c.core).empty());
    c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 23), c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  } else {
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
}

TEST_CASE("RouterCore collects a streaming prompt when all prefill workers refuse it") {
  Cluster c;
  const RouterCore::Failure full{absl::ResourceExhaustedError("full"), absl::Milliseconds(100)};
  REQUIRE(c.core.Submit(OpenRequest("r"), c.now).ok());
  Take(c.core);
  SECTION("another prefill worker takes the prompt") {
    c.core.WorkerAttached("prefill-2", Info(WorkerRole::kPrefill, "prefill-2", 12), c.now);
    c.core.Failed(kP, "r", full, c.now);
    CHECK(Take(c.core) == Lines{"open r prefill-2 decode-1"});
  }
  SECTION("the router collects the prompt until it closes") {
    c.core.Failed(kP, "r", full, c.now);
    c.core.Grew("r", 32);
    c.core.Tick(c.now += absl::Hours(1));
    CHECK(Take(c.core).empty());
    CHECK(c.core.NextTick() == absl::InfiniteFuture());
    c.core.Closed("r", 40, 10, c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
    // From here on the request's wait is limited, as that of any other request.
    c.core.Failed(kP, "r", full, c.now);
    c.core.Tick(c.now += absl::Seconds(29));
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
    c.core.Failed(kP, "r", full, c.now += absl::Seconds(1));
    CHECK(Take(c.core) == Lines{"end r RESOURCE_EXHAUSTED"});
  }
  SECTION("the router collects the prompt until its cancellation or deadline") {
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

TEST_CASE("RouterCore ends a request with at_holder when its holder refuses or leaves") {
  Cluster c;
  c.core.WorkerAttached("prefill-2", Info(WorkerRole::kPrefill, "prefill-2", 12), c.now);
  RouteRequest request = OpenRequest("r");
  request.prefill_only = request.at_holder = true;
  request.holder = kP;
  const RouterCore::Failure full{absl::ResourceExhaustedError("full"), absl::Milliseconds(100)};
  SECTION("the holder refuses the streaming prompt") {
    REQUIRE(c.core.Submit(request, c.now).ok());
    CHECK(Take(c.core) == Lines{"open r prefill-1 "});
    c.core.Failed(kP, "r", full, c.now);
    CHECK(Take(c.core) == Lines{"end r RESOURCE_EXHAUSTED"});
  }
  SECTION("the holder refuses the closed prompt") {
    REQUIRE(c.core.Submit(request, c.now).ok());
    c.core.Closed("r", 40, 0, c.now);
    Take(c.core);
    c.core.Failed(kP, "r", full, c.now);
    CHECK(Take(c.core) == Lines{"end r RESOURCE_EXHAUSTED"});
  }
  SECTION("the holder is lost while the prompt streams") {
    REQUIRE(c.core.Submit(request, c.now).ok());
    Take(c.core);
    c.core.WorkerLost(kP, c.now);
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
  SECTION("the holder is lost before the request arrives") {
    c.core.WorkerLost(kP, c.now);
    REQUIRE(c.core.Submit(request, c.now).ok());
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
  CHECK(c.core.live_requests() == 0);
}

TEST_CASE("RouterCore keeps no waiting slot for streaming prompts that it collects") {
  RouterLimits limits;
  limits.waiting_requests = 1;
  Cluster c(limits);
  const RouterCore::Failure full{absl::ResourceExhaustedError("full"), absl::Milliseconds(100)};
  const Lines ids = {"a", "b", "c"};
  for (const std::string& id : ids) {
    REQUIRE(c.core.Submit(OpenRequest(id), c.now).ok());
    c.core.Failed(kP, id, full, c.now);
  }
  REQUIRE(c.core.Submit(Ask("whole"), c.now).ok());
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

TEST_CASE("Assignments does not count cached tokens as queued") {
  Cluster c;
  RouteRequest request = Ask("r");
  request.keys.resize(1);
  REQUIRE(c.core.Submit(request, c.now).ok());
  CHECK(c.core.workers().at(kP).prompt_tokens == 20);
  request.id = "same prompt";
  REQUIRE(c.core.Submit(request, c.now).ok());
  CHECK(c.core.workers().at(kP).prompt_tokens == 20 + 4);
  request = OpenRequest("shadow");
  request.prompt_tokens = 500;
  request.holder = kP;
  request.held_tokens = 490;
  REQUIRE(c.core.Submit(request, c.now).ok());
  c.core.Grew("shadow", 516);
  CHECK(c.core.workers().at(kP).prompt_tokens == 24 + 10 + 16);
  for (const char* id : {"r", "same prompt", "shadow"}) c.core.Cancel(id);
  CHECK(c.core.workers().at(kP).prompt_tokens == 0);
  Take(c.core);
}

}  // namespace
}  // namespace baton
