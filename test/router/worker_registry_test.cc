#include "router/worker_registry.h"

#include "world/router_core_world.h"

namespace baton {
namespace {

const absl::Time kOpened = absl::UnixEpoch();

TEST_CASE("WorkerRegistry names what is missing when a model has no workers of a kind") {
  WorkerRegistry registry(absl::Seconds(30));
  CHECK(registry.Readiness("m", false).message() == "no decode worker for model 'm' is attached");
  registry.Attach(kD, Info(WorkerRole::kDecode, kD));
  CHECK(registry.Readiness("m", false).message() == "no prefill worker for model 'm' is attached");
  registry.Attach(kP, Info(WorkerRole::kPrefill, kP));
  CHECK(registry.Readiness("m", false).ok());
  registry.CheckInvariants();
}

TEST_CASE("WorkerRegistry names two workers of a model that cannot share KV") {
  WorkerRegistry registry(absl::Seconds(30));
  registry.Attach(kD, Info(WorkerRole::kDecode, kD));
  WorkerInfo other = Info(WorkerRole::kPrefill, kP);
  other.module_digest[0] = 1;
  registry.Attach(kP, other);
  CHECK(registry.Readiness("m", false).message() ==
        "prefill worker prefill-1 and decode worker decode-1 serve model 'm' and cannot share KV: their weights, KV "
        "formats or devices differ");
}

TEST_CASE("WorkerRegistry offers only prefill workers whose KV a decode worker reads") {
  WorkerRegistry registry(absl::Seconds(30));
  WorkerInfo stranger = Info(WorkerRole::kPrefill, "stranger");
  stranger.model = "module";
  stranger.module_digest[0] = 1;
  registry.Attach("stranger", stranger);
  WorkerInfo other_format = Info(WorkerRole::kPrefill, "f32");
  other_format.layout.format = KvFormat::kF32;
  registry.Attach("f32", other_format);
  registry.Attach(kP, Info(WorkerRole::kPrefill, kP));
  registry.Attach(kD, Info(WorkerRole::kDecode, kD));
  const auto decodes = registry.Decodes("m");
  REQUIRE(decodes.size() == 1);
  const auto prefills = registry.Prefills("m", /*prefill_only=*/false, decodes);
  REQUIRE(prefills.size() == 1);
  CHECK(prefills[0]->link == kP);
  CHECK(registry.Prefills("module", /*prefill_only=*/true, {}).size() == 1);
}

TEST_CASE("WorkerRegistry awaits only drained workers, for restart_wait") {
  WorkerRegistry registry(absl::Seconds(30));
  registry.Attach(kP, Info(WorkerRole::kPrefill, kP));
  for (const bool draining : {false, true}) {
    registry.Attach(kD, Info(WorkerRole::kDecode, kD));
    registry.At(kD).load.draining = draining;
    CHECK(registry.IsDraining(kD) == draining);
    registry.Remove(kD, kOpened);
    CHECK(registry.AwaitedUntil("m", false) == (draining ? kOpened + absl::Seconds(30) : absl::InfinitePast()));
  }
  registry.Attach(kD, Info(WorkerRole::kDecode, kD));
  CHECK(registry.AwaitedUntil("m", false) == absl::InfinitePast());
  registry.CheckInvariants();
}

TEST_CASE("WorkerRegistry counts a drained worker as missing, but not its weights") {
  WorkerRegistry registry(absl::Seconds(30));
  registry.Attach(kP, Info(WorkerRole::kPrefill, kP));
  registry.Attach(kD, Info(WorkerRole::kDecode, kD));
  registry.SetDrained(kD, true);
  CHECK(registry.Readiness("m", false).message() == "no decode worker for model 'm' is attached");
  CHECK(registry.Readiness("m", true).ok());
  registry.SetDrained(kP, true);
  CHECK(registry.Readiness("m", true).message() == "no prefill worker for model 'm' is attached");
  // The drain may end, and then both workers would serve the model.
  WorkerInfo other = Info(WorkerRole::kDecode, "decode-2");
  other.weights_digest[0] = 1;
  CHECK_FALSE(registry.MayAttach(other).ok());
}

}  // namespace
}  // namespace baton
