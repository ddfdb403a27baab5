// Requests whose decode worker is lost, or cannot start or continue them.
#include "catch.h"
#include "world/router_core_world.h"

namespace baton {
namespace {

TEST_CASE("RouterCore goes on with a decoding request when one of its workers is lost") {
  Cluster c;
  Bring(c, Stage::kDecoding);
  SECTION("another decode worker is attached") {
    c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 23), c.now);
    c.core.WorkerLost(kD, c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-2"});
    CHECK(c.core.PrefillDone(kP, "r", Incarnation(23), c.now));
    CHECK(Take(c.core) == Lines{"decode r decode-2"});
    CHECK_FALSE(c.core.TokensArrived(kD, "r", false));
    CHECK(c.core.TokensArrived("decode-2", "r", true));
    CHECK(Take(c.core) == Lines{"end r OK"});
  }
  SECTION("the lost worker attaches again") {
    c.core.WorkerLost(kD, c.now);
    CHECK(Take(c.core).empty());
    c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 23), c.now + absl::Seconds(1));
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
  }
  SECTION("no decode worker attaches") {
    c.core.WorkerLost(kD, c.now);
    c.core.Tick(c.now + absl::Seconds(2));
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
  SECTION("each worker sends tokens before it is lost") {
    for (uint64_t restart = 0; restart < 9; ++restart) {
      c.core.WorkerLost(kD, c.now);
      c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 30 + restart), c.now);
      REQUIRE(c.core.PrefillDone(kP, "r", Incarnation(30 + restart), c.now));
      REQUIRE(c.core.TokensArrived(kD, "r", false));
    }
  }
  SECTION("the prefill worker is lost") {
    c.core.WorkerLost(kP, c.now);
    CHECK(Take(c.core).empty());
    CHECK(c.core.TokensArrived(kD, "r", true));
    CHECK(Take(c.core) == Lines{"end r OK"});
  }
}

TEST_CASE("RouterCore places a decoding request again if its worker has no room to go on") {
  Cluster c;
  Bring(c, Stage::kDecoding);
  c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 23), c.now);
  c.core.Failed(kD, "r", Full(), c.now);
  CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-2"});
}

TEST_CASE("RouterCore repeats a hand-off to a decode worker that has restarted") {
  Cluster c;
  Bring(c, Stage::kPrefilling);
  CHECK_FALSE(c.core.PrefillDone(kP, "r", Incarnation(23), c.now));
  CHECK(Take(c.core).empty());
  SECTION("the router notices soon") {
    c.core.WorkerLost(kD, c.now);
    c.core.WorkerAttached(kD, Info(WorkerRole::kDecode, kD, 23), c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
    CHECK(c.core.PrefillDone(kP, "r", Incarnation(23), c.now));
    CHECK(Take(c.core) == Lines{"decode r decode-1"});
  }
  SECTION("the router does not notice") {
    for (absl::Duration waited; waited < absl::Seconds(28); waited += absl::Seconds(2)) {
      c.core.Tick(c.now += absl::Seconds(2));  // worker_wait
      CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
      CHECK_FALSE(c.core.PrefillDone(kP, "r", Incarnation(23), c.now));
      CHECK(Take(c.core).empty());
    }
    c.core.Tick(c.now += absl::Seconds(2));  // capacity_wait
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
  SECTION("another worker takes the request") {
    c.core.WorkerAttached("decode-2", Info(WorkerRole::kDecode, "decode-2", 24), c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-2"});
  }
}

TEST_CASE("RouterCore asks no other prefill worker when the decode worker has restarted") {
  Cluster c;
  Bring(c, Stage::kPrefilling);
  c.core.WorkerAttached("prefill-2", Info(WorkerRole::kPrefill, "prefill-2", 12), c.now);
  CHECK_FALSE(c.core.PrefillDone(kP, "r", Incarnation(23), c.now));
  CHECK(Take(c.core).empty());
}

TEST_CASE("RouterCore repeats a hand-off that fails at Start, and reports the third failure") {
  for (const absl::Status& error : {absl::FailedPreconditionError("lapsed"), absl::DataLossError("other bytes")}) {
    Cluster c;
    Bring(c, Stage::kStarting);
    for (const absl::Duration wait : {absl::Milliseconds(10), absl::Seconds(1)}) {
      c.core.Failed(kD, "r", {error, absl::ZeroDuration()}, c.now);
      CHECK(Take(c.core).empty());
      c.core.Tick(c.now += wait);
      CHECK(Take(c.core) == Lines{"prefill r prefill-1 decode-1"});
      REQUIRE(c.core.PrefillDone(kP, "r", Incarnation(22), c.now));
      Take(c.core);
    }
    c.core.Failed(kD, "r", {error, absl::ZeroDuration()}, c.now);
    CHECK(Take(c.core) == Lines{"end r UNAVAILABLE"});
  }
}

}  // namespace
}  // namespace baton
