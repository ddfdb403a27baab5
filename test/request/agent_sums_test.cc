#include "request/agent_sums.h"

#include <memory>

#include "catch.h"
#include "request/lives.h"

namespace baton {
namespace {

// A request of 100 prompt tokens, 20 of them cached. Its prompt is complete after 50 ms, and
// prefilled after 80 ms.
RequestLife PrefilledLife(const std::string& agent = "reader") {
  RequestLife life;
  life.agent = agent;
  life.outcome.prompt_tokens = 100;
  life.outcome.cached_tokens = 20;
  life.outcome.completion_tokens = 7;
  life.stages.arrived = At(0);
  life.stages.complete = At(50);
  life.stages.placed = At(1);
  life.stages.computing = At(60);
  life.stages.computed = life.stages.prefilled = At(80);
  life.stages.decoding = At(85);
  life.stages.first_token = At(90);
  life.stages.ended = At(120);
  return life;
}

// A step that ends at this time of a PrefilledLife.
PrefillStep StepUntil(int64_t ended_ms, int32_t tokens) {
  const absl::Duration ended = At(80) - At(ended_ms);
  return {.began = ended + absl::Milliseconds(5), .ended = ended, .tokens = tokens};
}

TEST_CASE("OverlapTokens counts steps that ended before the prompt was complete") {
  RequestLife life = PrefilledLife();
  CHECK(OverlapTokens(life) == 0);
  life.steps = {StepUntil(10, 48), StepUntil(50, 15), StepUntil(52, 4), StepUntil(80, 12)};
  CHECK(OverlapTokens(life) == 63);
  life.stages.complete = At(0);
  CHECK(OverlapTokens(life) == 0);
}

TEST_CASE("OverlapTokens counts no tokens that a restarted prompt dropped") {
  RequestLife life = PrefilledLife();
  life.steps = {StepUntil(10, 48), StepUntil(40, 30), StepUntil(80, 60)};
  CHECK(OverlapTokens(life) == 19);
  life.steps = {StepUntil(10, 48), StepUntil(80, 90)};
  CHECK(OverlapTokens(life) == 0);
}

TEST_CASE("SumsOf adds up tokens and times by agent, and counts refusals apart") {
  Timeline::Lives lives;
  const auto add = [&lives](RequestLife life) {
    lives.push_back(std::make_shared<const RequestLife>(std::move(life)));
  };
  RequestLife reader = PrefilledLife();
  reader.steps = {StepUntil(10, 60), StepUntil(80, 19)};
  add(reader);
  reader.outcome.status = absl::AbortedError("failed");
  add(reader);
  RequestLife refused = PrefilledLife("writer");
  refused.refused = true;
  add(refused);
  add(refused);
  RequestLife live = PrefilledLife("");
  live.stages.complete = live.stages.computing = live.stages.ended = absl::InfiniteFuture();
  add(live);
  const std::vector<AgentSums> sums = SumsOf(lives, At(70));
  REQUIRE(sums.size() == 3);
  CHECK(sums[0].agent == "reader");
  CHECK(sums[0].requests == 2);
  CHECK(sums[0].failed == 1);
  CHECK(sums[0].prompt_tokens == 200);
  CHECK(sums[0].cached_tokens == 40);
  CHECK(sums[0].completion_tokens == 14);
  CHECK(sums[0].overlap_tokens == 120);
  CHECK(sums[1].agent.empty());
  CHECK(sums[1].requests == 1);
  CHECK(sums[1].total == absl::Milliseconds(70));
  CHECK(sums[1].upstream == absl::Milliseconds(70));
  CHECK(sums[2].agent == "writer");
  CHECK(sums[2].requests == 0);
  CHECK(sums[2].refused == 2);
  CHECK(sums[2].total == absl::ZeroDuration());
  const AgentSums later = SumsOf(lives, At(500))[1];
  CHECK(later.agent == "reader");
  CHECK(later.total == absl::Milliseconds(240));
  CHECK(later.upstream == absl::Milliseconds(100));
  CHECK(later.queued == absl::Milliseconds(30));
}

}  // namespace
}  // namespace baton
