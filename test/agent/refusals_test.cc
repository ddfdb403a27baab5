// Requests whose submission is refused, and the prompts that refer to them.
#include "base/root_cause.h"
#include "base/strings.h"
#include "world/agent_world.h"

namespace baton {
namespace {

using Code = absl::StatusCode;

Reference To(const RequestId& upstream, OnFailure on_failure = OnFailure::kAbort, bool announced = true) {
  return {.upstream = upstream, .announced = announced, .on_failure = on_failure, .substitute = Bytes("none")};
}

// Submits a prompt for each OnFailure, which refers to "a".
void SubmitDownstreams(AgentWorld& world) {
  REQUIRE(world.Submit(Spec("abort", {Bytes("<"), To("a"), Bytes(">")})).ok());
  REQUIRE(world.Submit(Spec("partial", {Bytes("<"), To("a", OnFailure::kPartial), Bytes(">")})).ok());
  REQUIRE(world.Submit(Spec("instead", {Bytes("<"), To("a", OnFailure::kSubstitute), Bytes(">")})).ok());
}

TEST_CASE("AgentGraph ends the prompts of a refused request at once, as OnFailure says") {
  AgentWorld world;
  SubmitDownstreams(world);
  for (const Code code : {Code::kInvalidArgument, Code::kNotFound, Code::kPermissionDenied, Code::kCancelled}) {
    AgentWorld each;
    SubmitDownstreams(each);
    each.Refuse("a", absl::Status(code, "why"));
    CHECK(each.reported["abort"].failure.code() == Code::kAborted);
    CHECK(each.Text("partial") == "<>");
    CHECK(each.reported["partial"].complete);
    CHECK(each.Text("instead") == "<none>");
    CHECK(each.reported["instead"].complete);
    CHECK(each.graph.counts() == AgentGraph::Counts{.kept = 1, .kept_bytes = each.graph.counts().kept_bytes});
  }
  // These refusals concern an accepted request, or another one.
  world.Refuse("a", absl::AlreadyExistsError("why"));
  world.Refuse("other", absl::InvalidArgumentError("why"));
  CHECK(world.graph.counts().streaming == 3);
}

TEST_CASE("AgentGraph gives a later prompt the reason why its upstream was refused") {
  AgentWorld world;
  world.Refuse("a", absl::InvalidArgumentError("sampling.top_p: expected [0, 1], got 2"));
  const bool announced = GENERATE(false, true);
  const absl::Status failed = world.Submit(Spec("b", {To("a", OnFailure::kAbort, announced)}));
  CHECK(failed.code() == Code::kAborted);
  CHECK(Message(failed) == "output_of 'a' (agent 'writer'): INVALID_ARGUMENT: sampling.top_p: expected [0, 1], got 2");
  CHECK(RootCauseOf(failed) ==
        RootCause{"a", "writer", Code::kInvalidArgument, "sampling.top_p: expected [0, 1], got 2"});
  REQUIRE(world.Submit(Spec("c", {Bytes("<"), To("a", OnFailure::kSubstitute, announced), Bytes(">")})).ok());
  CHECK(world.Text("c") == "<none>");

  SECTION("until a further submission is accepted") {
    REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
    REQUIRE(world.Submit(Spec("d", {To("a", OnFailure::kAbort, announced)})).ok());
    world.Made("a", "y");
    world.End("a");
    CHECK(world.Text("d") == "y");
  }
  SECTION("until the reason expires") {
    world.Advance(AgentLimits().keep_output);
    CHECK(world.Submit(Spec("d", {To("a", OnFailure::kAbort, false)})).code() == Code::kNotFound);
    CHECK(world.Submit(Spec("e", {To("a")})).ok());
  }
}

TEST_CASE("AgentGraph ends a chain of announced requests after one wait for a retry") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("d", {To("c")})).ok());
  REQUIRE(world.Submit(Spec("c", {To("b")})).ok());
  REQUIRE(world.Submit(Spec("b", {To("a")})).ok());
  if (GENERATE(false, true)) {
    world.Refuse("a", absl::UnavailableError("full"));
  } else {
    REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
    world.End("a", absl::UnavailableError("full"));
  }
  world.Advance(kRetryWait - absl::Nanoseconds(1));
  CHECK(world.graph.counts().streaming == 3);
  world.Advance(absl::Nanoseconds(1));
  for (const char* id : {"b", "c", "d"}) {
    CHECK(world.reported[id].failure.code() == Code::kAborted);
    CHECK(RootCauseOf(world.reported[id].failure)->request == "a");
    CHECK(RootCauseOf(world.reported[id].failure)->code == Code::kUnavailable);
  }
}

TEST_CASE("AgentGraph lets prompts wait after a refusal that may be retried") {
  AgentWorld world({.wait_retry = absl::Seconds(10)});
  const Code code = GENERATE(Code::kResourceExhausted, Code::kUnavailable);
  const bool before = GENERATE(false, true);
  INFO("prompts are submitted " << (before ? "before" : "after") << " the refusal");
  if (before) SubmitDownstreams(world);
  world.Refuse("a", absl::Status(code, "full"), absl::Seconds(5));
  if (!before) SubmitDownstreams(world);
  // This prompt need not announce the request.
  REQUIRE(world.Submit(Spec("late", {To("a", OnFailure::kAbort, false)})).ok());
  world.Advance(absl::Seconds(15) - absl::Nanoseconds(1));
  CHECK(world.graph.counts().streaming == 4);

  SECTION("and fails them when no further submission comes") {
    world.Advance(absl::Nanoseconds(1));
    for (const char* id : {"abort", "late"}) {
      CHECK(world.reported[id].failure.code() == Code::kAborted);
      CHECK(RootCauseOf(world.reported[id].failure) == RootCause{"a", "writer", code, "full"});
    }
    CHECK(world.Text("partial") == "<>");
    CHECK(world.Text("instead") == "<none>");
    CHECK(world.graph.counts().announced == 0);
    CHECK(world.Submit(Spec("later", {To("a")})).code() == Code::kAborted);
  }
  SECTION("and counts from the last refusal") {
    world.Refuse("a", absl::Status(code, "still full"));
    world.Advance(kRetryWait - absl::Nanoseconds(1));
    CHECK(world.graph.counts().streaming == 4);
    world.Advance(absl::Nanoseconds(1));
    CHECK(RootCauseOf(world.reported["abort"].failure)->message == "still full");
  }
  SECTION("and gives them the output of a further submission") {
    REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
    world.Advance(absl::Minutes(1));
    world.Made("a", "y");
    world.End("a");
    for (const char* id : {"abort", "partial", "instead"}) CHECK(world.Text(id) == "<y>");
    CHECK(world.Text("late") == "y");
  }
}

TEST_CASE("AgentGraph ends all members of a cycle, and the prompts that wait for them") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {To("b")})).ok());
  REQUIRE(world.Submit(Spec("b", {To("c")})).ok());
  REQUIRE(world.Submit(Spec("outside", {To("a", OnFailure::kAbort, false)})).ok());
  REQUIRE(world.Submit(Spec("instead", {Bytes("<"), To("c", OnFailure::kSubstitute), Bytes(">")})).ok());
  const absl::Status closes = world.Submit(Spec("c", {Bytes("x"), To("a", OnFailure::kAbort, false)}));
  REQUIRE(closes.code() == Code::kInvalidArgument);
  world.Refuse("c", closes);  // as the router does
  for (const char* id : {"a", "b", "outside"}) {
    INFO(id);
    CHECK(world.reported[id].failure.code() == Code::kAborted);
    CHECK(RootCauseOf(world.reported[id].failure)->request == "c");
  }
  CHECK(world.Text("instead") == "<none>");
  CHECK(world.graph.counts().streaming == 0);
}

TEST_CASE("AgentGraph states the root cause once however deep the failure is") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("r0", {Bytes("x")})).ok());
  for (int i = 1; i <= 6; ++i) {
    REQUIRE(world.Submit(Spec(absl::StrCat("r", i), {To(absl::StrCat("r", i - 1))})).ok());
  }
  world.End("r0", absl::InternalError("the worker is broken"));
  for (int i = 1; i <= 6; ++i) {
    const absl::Status failure = world.reported[absl::StrCat("r", i)].failure;
    CHECK(failure.code() == Code::kAborted);
    CHECK(RootCauseOf(failure) == RootCause{"r0", "", Code::kInternal, "the worker is broken"});
    CHECK(Message(failure) ==
          (i == 1 ? "output_of 'r0': INTERNAL: the worker is broken"
                  : absl::StrCat("output_of 'r", i - 1, "': request 'r0' failed: INTERNAL: the worker is broken")));
  }
}

TEST_CASE("AgentGraph treats an unknown output as failed when its reference has another use for it") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  world.Made("a", "y");
  world.End("a");
  world.Advance(AgentLimits().keep_output);
  CHECK(world.Submit(Spec("abort", {To("a", OnFailure::kAbort, false)})).code() == Code::kNotFound);
  REQUIRE(world.Submit(Spec("partial", {Bytes("<"), To("a", OnFailure::kPartial, false), Bytes(">")})).ok());
  CHECK(world.Text("partial") == "<>");
  REQUIRE(world.Submit(Spec("instead", {Bytes("<"), To("a", OnFailure::kSubstitute, false), Bytes(">")})).ok());
  CHECK(world.Text("instead") == "<none>");
}

TEST_CASE("AgentGraph forgets the reason of the first refusal when there are too many") {
  AgentWorld world({.refused = 2});
  for (const char* id : {"a", "b", "c"}) world.Refuse(id, absl::InvalidArgumentError("why"));
  CHECK(world.Submit(Spec("x", {To("a", OnFailure::kAbort, false)})).code() == Code::kNotFound);
  CHECK(world.Submit(Spec("y", {To("b", OnFailure::kAbort, false)})).code() == Code::kAborted);
}

TEST_CASE("AgentGraph ignores a refusal of an id that a request has") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  REQUIRE(world.Submit(Spec("b", {To("a")})).ok());
  world.Refuse("a", absl::InvalidArgumentError("why"));
  world.Made("a", "y");
  world.End("a");
  CHECK(world.Text("b") == "y");
  world.Refuse("a", absl::InvalidArgumentError("why"));
  REQUIRE(world.Submit(Spec("c", {To("a")})).ok());
  CHECK(world.Text("c") == "y");
}

}  // namespace
}  // namespace baton
