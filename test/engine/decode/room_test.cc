// Tests of a decode worker's reports of room.
#include <random>
#include <vector>

#include "catch.h"
#include "engine/decode/engine.h"
#include "engine/decode/outputs.h"

namespace baton {
namespace {

std::vector<TokenId> Prompt(uint32_t seed, size_t length) {
  std::mt19937 random(seed);
  return RandomPrompt(random, length);
}

TEST_CASE("DecodeEngine reports room once per refusal when a request has ended") {
  DecodeWorld world(TestOptions(8));
  world.StartJob(TestJob("r", Prompt(1, 65), 40));
  const auto refused = [&](const RequestId& id) {
    DecodeJob job = TestJob(id, Prompt(2, 33), 100);
    return !world.HandOffJob(job);
  };
  for (const char* id : {"a", "b"}) REQUIRE(refused(id));
  world.Step();
  CHECK(world.room == 0);
  world.RunAll();
  world.TakeEvents();
  CHECK(world.room == 1);  // a and b do not fit beside each other
  REQUIRE_FALSE(refused("a"));
  world.TakeEvents();
  CHECK(world.room == 1);
  world.engine.Cancel("a", world.now);
  world.Step();
  world.TakeEvents();
  CHECK(world.room == 2);
}

TEST_CASE("DecodeEngine grants short requests no room that it keeps for a long one") {
  DecodeWorld world(TestOptions(8));
  for (const char* id : {"a", "b"}) world.StartJob(TestJob(id, Prompt(id[0], 33), 20 + 10 * (id[0] - 'a')));
  DecodeJob big = TestJob("long", Prompt(3, 81), 8);
  REQUIRE_FALSE(world.HandOffJob(big));
  const bool keeps = GENERATE(true, false);
  if (keeps) {
    world.engine.handoff().Keep(
        RouterStream(1), {.request_id = "long", .kv_tokens = 80, .expected_new_tokens = 8, .waited = absl::Seconds(3)},
        world.now);
  }
  CHECK(world.engine.load().keeps_room == keeps);
  // Short requests come one after the other, so that the worker always has some.
  int granted = 0;
  for (int i = 0; i < 40 && world.kept.empty(); ++i) {
    DecodeJob brief = TestJob(absl::StrCat("short", i), Prompt(static_cast<uint32_t>(10 + i), 33), 20);
    if (world.HandOffJob(brief)) {
      ++granted;
      REQUIRE(world.engine.Start(brief, world.now).ok());
    }
    world.Step();
  }
  CHECK((granted == 0) == keeps);
  CHECK(world.kept == (keeps ? std::vector<RequestId>{"long"} : std::vector<RequestId>{}));
  CHECK(world.HandOffJob(big) == keeps);
  CHECK_FALSE(world.engine.load().keeps_room);
}

}  // namespace
}  // namespace baton
