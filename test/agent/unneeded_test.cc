// Outputs to which prompts referred, and that no prompt needs.
#include "world/agent_world.h"

namespace baton {
namespace {

using Code = absl::StatusCode;

// Submits requests with prompts of their own.
void SubmitWriters(AgentWorld& world, std::initializer_list<const char*> ids) {
  for (const char* id : ids) REQUIRE(world.Submit(Spec(id, {Bytes("x")})).ok());
}

bool IsLive(AgentWorld& world, const RequestId& id) { return world.Node(id).output != nullptr; }

TEST_CASE("AgentGraph reports an output when the last request that refers to it ends") {
  AgentWorld world;
  SubmitWriters(world, {"a", "alone"});
  for (const char* id : {"b", "c"}) REQUIRE(world.Submit(Spec(id, {Bytes("<"), Reference{"a"}, Reference{"a"}})).ok());
  world.Made("a", "y");
  world.End("b", absl::CancelledError("by the client"));
  CHECK(IsLive(world, "a"));
  world.End("c", absl::Status(GENERATE(Code::kCancelled, Code::kInternal), "why"));
  CHECK_FALSE(IsLive(world, "a"));
  CHECK(world.reported["a"].failure.code() == Code::kCancelled);
  CHECK(IsLive(world, "alone"));
  // A later prompt finds the output so far.
  Reference late{"a"};
  late.on_failure = OnFailure::kPartial;
  REQUIRE(world.Submit(Spec("late", {late})).ok());
  CHECK(world.Text("late") == "y");
}

TEST_CASE("AgentGraph reports no output of a request with keep") {
  AgentWorld world;
  world.Node("a").keep = true;
  SubmitWriters(world, {"a"});
  REQUIRE(world.Submit(Spec("b", {Reference{"a"}})).ok());
  world.End("b", absl::CancelledError("by the client"));
  CHECK(IsLive(world, "a"));
}

TEST_CASE("AgentGraph reports outputs through all levels of a graph") {
  AgentWorld world;
  SubmitWriters(world, {"a"});
  REQUIRE(world.Submit(Spec("b", {Reference{"a"}})).ok());
  REQUIRE(world.Submit(Spec("c", {Reference{"b"}})).ok());
  REQUIRE(world.Submit(Spec("d", {Reference{"c"}})).ok());
  world.End("d", absl::CancelledError("by the client"));
  for (const char* id : {"a", "b", "c"}) CHECK_FALSE(IsLive(world, id));
  CHECK(world.graph.counts().streaming == 0);
}

TEST_CASE("AgentGraph reports the outputs that a prompt with first discards") {
  AgentWorld world;
  SubmitWriters(world, {"a", "b", "c", "d"});
  NamedPrompt spec = Spec("judge", {Reference{"a"}, Reference{"b"}, Reference{"c"}, Reference{"d"}});
  spec.first = 2;
  REQUIRE(world.Submit(spec).ok());
  REQUIRE(world.Submit(Spec("also", {Reference{"d"}})).ok());
  world.Made("c", "y");
  world.End("c");
  CHECK(IsLive(world, "b"));
  world.End("a");
  CHECK_FALSE(IsLive(world, "b"));
  CHECK(world.reported["b"].failure.code() == Code::kCancelled);
  CHECK(IsLive(world, "d"));  // another prompt needs it
  CHECK(world.Text("judge") == "y");
}

TEST_CASE("AgentGraph reports an output that is discarded at the submission of its prompt") {
  AgentWorld world;
  SubmitWriters(world, {"a", "b"});
  world.Made("a", "y");
  world.End("a");
  NamedPrompt spec = Spec("judge", {Reference{"a"}, Reference{"b"}});
  spec.first = 1;
  SECTION("and the prompt is accepted") {
    REQUIRE(world.Submit(spec).ok());
    CHECK_FALSE(IsLive(world, "b"));
  }
  SECTION("but not if the prompt is too long") {
    spec.segments.emplace_back(Bytes(std::string(20000, 'x')));
    CHECK(world.Submit(spec).code() == Code::kInvalidArgument);
    CHECK(IsLive(world, "b"));
  }
}

TEST_CASE("AgentGraph reports no output when the submission that refers to it is undone") {
  AgentWorld world;
  SubmitWriters(world, {"a", "b"});
  world.Made("a", "y");
  world.End("a");
  PromptSpec spec = Spec("judge", {Reference{"a"}, Reference{"b"}});
  spec.first = GENERATE(0, 1);
  spec.tokenizer = &ByteTokens();
  spec.most_tokens = 100;
  REQUIRE(world.graph.Submit(world.Node("judge"), spec, world.now).ok());
  world.graph.Undo(world.Node("judge"));
  CHECK(world.graph.TakeActions().empty());
  CHECK_FALSE(AgentGraph::IsNeeded(world.Node("b")));
  world.graph.CheckInvariants();
}

TEST_CASE("AgentGraph reports the siblings of an upstream that made a submission fail") {
  AgentWorld world;
  SubmitWriters(world, {"a", "b"});
  world.End("a", absl::InternalError("broken"));
  CHECK(world.Submit(Spec("c", {Reference{"a"}, Reference{"b"}})).code() == Code::kAborted);
  CHECK_FALSE(IsLive(world, "b"));
}

TEST_CASE("AgentGraph reports an output whose references have timed out") {
  AgentWorld world;
  SubmitWriters(world, {"a", "b"});
  Reference early{"a"}, late{"a"};
  early.on_failure = late.on_failure = OnFailure::kPartial;
  early.timeout = absl::Seconds(1);
  late.timeout = absl::Seconds(2);
  REQUIRE(world.Submit(Spec("c", {early, late, Reference{"b"}})).ok());
  world.Advance(absl::Seconds(1));
  CHECK(IsLive(world, "a"));
  world.Advance(absl::Seconds(1));
  CHECK_FALSE(IsLive(world, "a"));
  CHECK(IsLive(world, "b"));
}

TEST_CASE("AgentGraph reports no output that only internal requests referred to") {
  AgentWorld world;
  SubmitWriters(world, {"a", "b"});
  for (const char* id : {"hint", "other"}) world.Node(id).is_internal = true;
  REQUIRE(world.Submit(Spec("hint", {Reference{"a"}})).ok());
  REQUIRE(world.Submit(Spec("other", {Reference{"b"}})).ok());
  REQUIRE(world.Submit(Spec("c", {Reference{"b"}})).ok());
  world.End("hint", absl::CancelledError("by the router"));
  CHECK(IsLive(world, "a"));
  // An internal request does not keep the output.
  world.End("c", absl::CancelledError("by the client"));
  CHECK_FALSE(IsLive(world, "b"));
}

}  // namespace
}  // namespace baton
