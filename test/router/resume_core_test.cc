// Requests whose decode worker is lost, or cannot start or continue them.
#include "catch.h"
#include "request/priority.h"
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

WorkerInfo Sized(const std::string& name, uint64_t incarnation, int64_t blocks) {
  WorkerInfo info = Info(WorkerRole::kDecode, name, incarnation);
  info.blocks_total = blocks;
  return info;
}

TokenUpdate Tokens(size_t count, std::optional<FinishReason> finish = {}) {
  TokenUpdate update;
  update.tokens.assign(count, 1);
  update.finish = finish;
  return update;
}

// Request "r" has 20 tokens of prompt and 12 of output. They fill its decode worker "small".
struct Filled : Cluster {
  explicit Filled(RouteRequest request = {
                      .id = "r", .model = "m", .prompt_tokens = 20, .max_new_tokens = 500, .expected_tokens = 1}) {
    core.WorkerLost(kD, now);
    core.WorkerAttached("small", Sized("small", 31, 2), now);
    REQUIRE(core.Submit(std::move(request), now).ok());
    REQUIRE(core.PrefillDone(kP, "r", Incarnation(31), now));
    REQUIRE(core.TokensArrived("small", "r", Tokens(12), now));
    Take(core);
  }
  void AttachLarge() {
    core.WorkerAttached("small-2", Sized("small-2", 32, 2), now);
    core.WorkerAttached("large", Sized("large", 33, 20), now);
    CHECK(Take(core).empty());
  }
  // Returns whether the last update may be passed on.
  bool Ends(FinishReason reason = FinishReason::kLength) {
    return core.TokensArrived("small", "r", Tokens(1, reason), now);
  }
};

TEST_CASE("RouterCore resumes an output at a larger worker when it fills its decode worker") {
  Filled c;
  c.AttachLarge();
  CHECK_FALSE(c.Ends());
  CHECK(Take(c.core) == Lines{"prefill r prefill-1 large"});
  SECTION("the larger worker has room") {
    CHECK(c.core.PrefillDone(kP, "r", Incarnation(33), c.now));
    CHECK_FALSE(c.core.TokensArrived("small", "r", Tokens(1), c.now));
    CHECK(c.core.TokensArrived("large", "r", Tokens(1), c.now));
    CHECK(c.core.TokensArrived("large", "r", Tokens(1, FinishReason::kStop), c.now));
    CHECK(Take(c.core) == Lines{"decode r large", "end r OK"});
  }
  SECTION("the larger worker has room later") {
    c.core.Failed(kP, "r", NoRoom(), c.now);
    c.core.OnRoom("small", 1, c.now);
    c.core.Tick(c.now += absl::Seconds(1));
    CHECK(Take(c.core).empty());
    c.core.OnRoom("large", 1, c.now);
    CHECK(Take(c.core) == Lines{"prefill r prefill-1 large"});
  }
  SECTION("the larger worker has no room for long") {
    c.core.Failed(kP, "r", NoRoom(), c.now);
    // capacity_wait would end a request without output.
    c.core.Tick(c.now += absl::Seconds(299));
    const bool has_room = GENERATE(false, true);
    INFO("the worker has room in time: " << has_room);
    if (has_room) {
      Take(c.core);
      c.core.OnRoom("large", 1, c.now);
      CHECK(Take(c.core) == Lines{"prefill r prefill-1 large"});
    } else {
      c.core.Tick(c.now += absl::Seconds(1));
      CHECK(Take(c.core).back() == "end r RESOURCE_EXHAUSTED");
    }
  }
  SECTION("the larger worker leaves") {
    c.core.WorkerLost("large", c.now);
    const Lines again = Take(c.core);
    REQUIRE(again.size() == 2);  // the first line cancels the job of the prefill worker
    const bool is_small = again[1] == "prefill r prefill-1 small";
    CHECK(c.core.PrefillDone(kP, "r", Incarnation(is_small ? 31 : 32), c.now));
    Take(c.core);
    CHECK(c.core.TokensArrived(is_small ? "small" : "small-2", "r", Tokens(1, FinishReason::kLength), c.now));
    CHECK(Take(c.core) == Lines{"end r OK"});
  }
}

TEST_CASE("RouterCore ends an output that fills its worker if no larger worker is attached") {
  Filled c;
  c.core.WorkerAttached("small-2", Sized("small-2", 32, 2), c.now);
  CHECK(c.Ends());
  CHECK(Take(c.core) == Lines{"end r OK"});
}

TEST_CASE("RouterCore moves no output that has ended, or whose request never waits") {
  RouteRequest request{.id = "r", .model = "m", .prompt_tokens = 20, .max_new_tokens = 500};
  FinishReason reason = FinishReason::kLength;
  SECTION("a stop token ends it") { reason = FinishReason::kStop; }
  SECTION("it reaches max_tokens") { request.max_new_tokens = 13; }
  SECTION("the request has a low priority") { request.priority = kLowPriority; }
  Filled c(request);
  c.AttachLarge();
  CHECK(c.Ends(reason));
  CHECK(Take(c.core) == Lines{"end r OK"});
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
