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
    DecodeJob job = TestJob(id, Prompt(2, 33), 60);
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

}  // namespace
}  // namespace baton
