// Part groups, and prompts that use the first k of their outputs.
#include "base/root_cause.h"
#include "base/strings.h"
#include "world/agent_world.h"

namespace baton {
namespace {

using Code = absl::StatusCode;

// A group with the label "[NAME] " and the separator ";".
Reference Named(const RequestId& upstream, OnFailure on_failure = OnFailure::kAbort, std::string_view substitute = "") {
  return {.upstream = upstream,
          .announced = true,
          .on_failure = on_failure,
          .substitute = Bytes(substitute),
          .before = {Bytes("["), AgentName(), Bytes("] ")},
          .after = {Bytes(";")}};
}

NamedPrompt FirstOf(int32_t first, std::vector<PromptSegment> segments, Join join = Join::kOrder) {
  NamedPrompt prompt = Spec("down", std::move(segments));
  prompt.first = first;
  prompt.join = join;
  return prompt;
}

void SubmitUpstreams(AgentWorld& world, std::initializer_list<const char*> ids) {
  for (const char* id : ids) REQUIRE(world.Submit(Spec(id, {Bytes("x")})).ok());
}

void Write(AgentWorld& world, const RequestId& id, std::string_view text) {
  world.Made(id, text);
  world.End(id);
}

constexpr std::string_view kLong = "0123456789abcdefghijklmnopqrstuv";

TEST_CASE("A part group is given once its output has a token") {
  AgentWorld world;
  SubmitUpstreams(world, {"a"});
  REQUIRE(world.Submit(Spec("down", {Bytes("<"), Named("a"), Bytes(">")})).ok());
  world.Made("a", kLong);
  // Two blocks, and the token after them.
  CHECK(world.Text("down") == "<[a] 0123456789abcdefghijklmnopqr");
  world.End("a");
  CHECK(world.Text("down") == StrCat("<[a] ", kLong, ";>"));
}

TEST_CASE("A part group vanishes whole when its output has no tokens") {
  AgentWorld world;
  SubmitUpstreams(world, {"a", "b", "c"});
  const auto segments = [](OnFailure on_failure) {
    return std::vector<PromptSegment>{Bytes(kLong), Named("a", on_failure), Bytes(">")};
  };
  REQUIRE(world.Submit(Spec("empty", segments(OnFailure::kAbort))).ok());
  CHECK(world.Text("empty").size() == 17);
  SECTION("it ends empty") { world.End("a"); }
  SECTION("it fails, and the part so far is empty") {
    world.End("a", absl::InternalError("broken"));
    CHECK(world.reported["empty"].failure.code() == Code::kAborted);
    REQUIRE(world.Submit(Spec("empty", segments(OnFailure::kPartial))).ok());
  }
  SECTION("it fails, and the substitute is empty") {
    world.End("a", absl::InternalError("broken"));
    REQUIRE(world.Submit(Spec("empty", segments(OnFailure::kSubstitute))).ok());
  }
  CHECK(world.Text("empty") == StrCat(kLong, ">"));
  CHECK(world.reported["empty"].complete);
}

TEST_CASE("A part group that was given restarts the prompt for an empty substitute") {
  AgentWorld world;
  SubmitUpstreams(world, {"a"});
  REQUIRE(world.Submit(Spec("down", {Bytes("<"), Named("a", OnFailure::kSubstitute), Bytes(">")})).ok());
  world.Made("a", kLong);
  CHECK(world.Text("down").starts_with("<[a] 0"));
  world.End("a", absl::InternalError("broken"));
  CHECK(world.Text("down") == "<>");
  CHECK(world.reported["down"].restarts == 1);
}

TEST_CASE("A label names the agent whose output stands there") {
  AgentWorld world;
  world.Name("a", "writer");
  world.Name("b", "<|critic|>");
  SubmitUpstreams(world, {"a", "b", "c"});
  NamedPrompt prompt =
      FirstOf(0, {Named("a"), Named("b"), Named("c"), Named("d", OnFailure::kSubstitute, "none")}, Join::kArrival);
  REQUIRE(world.Submit(prompt).ok());
  Write(world, "c", "3");  // has no agent name
  Write(world, "b", "2");
  // A label belongs to the position of its group, not to the group's own output.
  SECTION("the last output is written") {
    world.Refuse("d", absl::InvalidArgumentError("why"));
    Write(world, "a", "1");
    CHECK(world.Text("down") == "[c] 3;[<|critic|>] 2;[writer] none;[writer] 1;");
  }
  SECTION("an output fails before an earlier one is complete") {
    prompt.id = "ordered";
    prompt.join = Join::kOrder;
    REQUIRE(world.Submit(prompt).ok());
    world.Refuse("d", absl::InvalidArgumentError("why"));
    Write(world, "a", "1");
    CHECK(world.Text("ordered") == "[writer] 1;[<|critic|>] 2;[c] 3;[writer] none;");
  }
  SECTION("the outputs have ended before the prompt") {
    Write(world, "a", "1");
    world.Refuse("d", absl::InvalidArgumentError("why"));
    prompt.id = "late";
    REQUIRE(world.Submit(prompt).ok());
    CHECK(world.Text("late") == "[writer] 1;[<|critic|>] 2;[c] 3;[writer] none;");
  }
}

TEST_CASE("A prompt uses the first outputs and discards the others") {
  AgentWorld world;
  SubmitUpstreams(world, {"a", "b", "c"});
  const std::vector<PromptSegment> segments = {Bytes("<"), Named("a"), Named("b"), Named("c"), Bytes(">")};
  SECTION("in the order of the prompt") {
    REQUIRE(world.Submit(FirstOf(2, segments)).ok());
    world.Made("a", kLong);
    CHECK(world.Text("down").empty());  // "a" may be discarded
    Write(world, "c", "3");
    CHECK_FALSE(world.reported["down"].complete);
    Write(world, "b", "2");
    CHECK(world.Text("down") == "<[b] 2;[c] 3;>");
  }
  SECTION("in the order of completion") {
    REQUIRE(world.Submit(FirstOf(2, segments, Join::kArrival)).ok());
    world.Made("a", kLong);
    Write(world, "c", std::string(30, 'c'));
    CHECK(world.Text("down") == StrCat("<[c] ", std::string(28, 'c')));
    Write(world, "b", "2");
    CHECK(world.Text("down") == StrCat("<[c] ", std::string(30, 'c'), ";[b] 2;>"));
  }
  SECTION("that have ended before it, in its order") {
    Write(world, "c", "3");
    Write(world, "b", "2");
    Write(world, "a", "1");
    REQUIRE(world.Submit(FirstOf(2, segments, Join::kArrival)).ok());
    CHECK(world.Text("down") == "<[a] 1;[b] 2;>");
  }
  CHECK(world.reported["down"].complete);
  CHECK(world.reported["down"].restarts == 0);
  CHECK(world.graph.counts().streaming == 0);
}

TEST_CASE("A prompt with `first` fails when too many outputs have failed") {
  AgentWorld world;
  SubmitUpstreams(world, {"a", "b", "c"});
  REQUIRE(world.Submit(FirstOf(2, {Named("a"), Named("b"), Named("c")})).ok());
  world.Made("b", kLong);
  world.End("a", absl::InternalError("broken"));
  // The prompt needs both of the other outputs, so it is prefilled.
  CHECK(world.Text("down").starts_with("[b] 0"));
  world.End("c", absl::UnavailableError("gone"));
  world.Advance(kRetryWait);
  const absl::Status failed = world.reported["down"].failure;
  CHECK(failed.code() == Code::kAborted);
  CHECK(Message(failed) == "first: fewer than 2 outputs can complete; output_of 'c': UNAVAILABLE: gone");
  CHECK(RootCauseOf(failed)->request == "c");
}

TEST_CASE("A partial or substituted output counts in `first`") {
  AgentWorld world;
  SubmitUpstreams(world, {"a", "b", "c"});
  REQUIRE(
      world
          .Submit(FirstOf(2, {Named("a", OnFailure::kPartial), Named("b", OnFailure::kSubstitute, "none"), Named("c")}))
          .ok());
  world.Made("a", "part");
  world.End("a", absl::InternalError("broken"));
  CHECK_FALSE(world.reported["down"].complete);
  world.End("b", absl::InternalError("broken"));
  CHECK(world.Text("down") == "[a] part;[b] none;");
}

TEST_CASE("Unknown and timed-out outputs do not count in `first`") {
  AgentWorld world;
  SubmitUpstreams(world, {"a", "b"});
  Reference late = Named("b");
  late.timeout = absl::Seconds(3);
  REQUIRE(world.Submit(FirstOf(1, {Reference{"never"}, late, Named("a")})).ok());
  world.Advance(absl::Seconds(4));
  CHECK(world.reported["down"].failure.ok());
  Write(world, "b", "late");
  CHECK_FALSE(world.reported["down"].complete);
  Write(world, "a", "1");
  CHECK(world.Text("down") == "[a] 1;");
  const absl::Status refused = world.Submit({FirstOf(2, {Reference{"never"}, Named("a")}), "none"});
  CHECK(refused.code() == Code::kAborted);
  CHECK(RootCauseOf(refused)->code == Code::kNotFound);
}

}  // namespace
}  // namespace baton
