// The messages about room that decode workers keep, and the names in them.
#include "catch.h"
#include "world/dispatcher_world.h"

namespace baton {
namespace {

TEST_CASE("Dispatcher names a request before it asks a worker to keep room for it") {
  Driven d;
  REQUIRE(d.Submit(d.Request("r", "ab")).ok());
  CHECK(d.Take() == Lines{"prefill-1: prefill r#ab.1 ab"});
  const auto refuse = [&] {
    (*d).OnFailed(kP, {d.NameOf("r"), absl::ResourceExhaustedError("full"), absl::ZeroDuration(), true}, d.now);
  };
  refuse();
  CHECK(d.Take().empty());
  d.now += RouterLimits().room_wait;
  (*d).Tick(d.now);
  CHECK(d.Take() == Lines{"decode-1: keep room for r#ab.2 1 + 4"});
  (*d).OnRoom(kD, {.kept = "r#ab.1"}, d.now);
  CHECK(d.Take().empty());
  (*d).OnRoom(kD, {.kept = "r#ab.2"}, d.now);
  CHECK(d.Take() == Lines{"prefill-1: prefill r#ab.2 ab"});
  refuse();
  CHECK(d.Take() == Lines{"decode-1: keep room for r#ab.3 1 + 4"});
  (*d).OnRoom(kD, {.requests = 1}, d.now);
  CHECK(d.Take() == Lines{"prefill-1: prefill r#ab.3 ab"});
  d.Prefilled("r");
  CHECK(d.Take() == Lines{"decode-1: keep no room", "decode-1: decode r#ab.3 ab"});
}

TEST_CASE("Dispatcher asks for room for prompt and output when a stream goes on") {
  Driven d;
  d.Run("r", "xyz", {});
  d.Take();
  (*d).WorkerLost(kD, d.now);
  (*d).WorkerAttached(kD, BytesWorker(WorkerRole::kDecode, kD, 22), d.now);
  d.Take();
  (*d).OnFailed(kP, {d.NameOf("r"), absl::ResourceExhaustedError("full"), absl::ZeroDuration(), true}, d.now);
  d.now += RouterLimits().room_wait;
  (*d).Tick(d.now);
  CHECK(d.Take() == Lines{"decode-1: keep room for r#ab.3 3 + 1"});
}

}  // namespace
}  // namespace baton
