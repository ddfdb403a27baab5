// The timers of requests, and the wait for room that a timer ends.
#include "router/request_timers.h"

#include "catch.h"
#include "world/router_core_world.h"

namespace baton {
namespace {

TEST_CASE("RequestTimers returns requests by time, then by id") {
  RequestTimers timers;
  CHECK(timers.Next() == absl::InfiniteFuture());
  CHECK(timers.First() == nullptr);
  Request a, b, c;
  a.id = "a";
  b.id = "b";
  c.id = "c";
  const absl::Time at = absl::UnixEpoch();
  timers.Set(b, at);
  timers.Set(a, at);
  timers.Set(c, at - absl::Seconds(1));
  CHECK(timers.Due(at) == std::vector<Request*>{&c, &a, &b});
  timers.Set(c, at + absl::Seconds(1));
  CHECK(timers.First() == &a);
  CHECK(timers.Due(at) == std::vector<Request*>{&a, &b});
  timers.Clear(a);
  timers.Clear(b);
  CHECK(timers.Next() == at + absl::Seconds(1));
  timers.Set(c, absl::InfiniteFuture());
  CHECK(timers.First() == nullptr);
}

TEST_CASE("RouterCore counts only waits against capacity_wait when a prompt is computed again") {
  Cluster c({.capacity_wait = absl::Seconds(30), .room_wait = absl::InfiniteDuration()});
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  // Waits for 10 s in all, and is computed for 80 s.
  for (int i = 0; i < 2; ++i) {
    c.core.Failed(kP, "r", NoRoom(), c.now);
    CHECK(c.core.waiting_requests() == 1);
    c.core.Tick(c.now += absl::Seconds(5));
    c.core.OnRoom(kD, 1, c.now);
    CHECK(Take(c.core).back() == "prefill r prefill-1 decode-1");
    c.core.Tick(c.now += absl::Seconds(40));
  }
  c.core.Failed(kP, "r", NoRoom(), c.now);
  CHECK(c.core.NextTick() == c.now + absl::Seconds(5));  // 10 of 15 s are over
  c.core.Tick(c.now + absl::Seconds(5));
  CHECK(c.core.late_requests() == 1);
  c.core.Tick(c.now + absl::Milliseconds(19'999));
  CHECK(Take(c.core).empty());
  c.core.Tick(c.now + absl::Seconds(20));
  CHECK(Take(c.core) == Lines{"end r RESOURCE_EXHAUSTED"});
}

TEST_CASE("RouterCore counts no wait when the prompt is handed off after a long computation") {
  Cluster c({.capacity_wait = absl::Seconds(30)});
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  c.core.Failed(kP, "r", NoRoom(), c.now);
  c.core.OnRoom(kD, 1, c.now);
  REQUIRE(c.core.PrefillDone(kP, "r", Incarnation(22), c.now += absl::Seconds(40)));
  c.core.Failed(kD, "r", {absl::FailedPreconditionError("lapsed"), absl::ZeroDuration()}, c.now);
  CHECK(c.core.waiting_requests() == 1);
}

TEST_CASE("RouterCore ends a request that is computed and refused for ten capacity_wait") {
  Cluster c({.capacity_wait = absl::Seconds(30), .room_wait = absl::InfiniteDuration()});
  REQUIRE(c.core.Submit(Ask("r"), c.now).ok());
  int refusals = 0;
  for (; c.core.live_requests() == 1; ++refusals) {
    REQUIRE(c.now <= absl::UnixEpoch() + absl::Seconds(300));
    c.core.Failed(kP, "r", NoRoom(), c.now);
    c.core.OnRoom(kD, 1, c.now);  // the request never waits
    c.now += absl::Seconds(20);
  }
  CHECK(refusals == 16);
  CHECK(Take(c.core).back() == "end r RESOURCE_EXHAUSTED");
}

}  // namespace
}  // namespace baton
