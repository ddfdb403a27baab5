// Requests that fail and are submitted again, while prompts wait for their outputs.
#include "base/root_cause.h"
#include "base/strings.h"
#include "world/agent_world.h"

namespace baton {
namespace {

using Code = absl::StatusCode;

constexpr char kFirstText[] = "0123456789abcdefghij";

Reference Announced(const RequestId& upstream, OnFailure on_failure = OnFailure::kAbort, bool announced = true) {
  return {.upstream = upstream, .announced = announced, .on_failure = on_failure, .substitute = Bytes("none")};
}

void Begin(AgentWorld& world, const RequestId& id, std::string_view text) {
  REQUIRE(world.Submit(Spec(id, {Bytes("x")})).ok());
  world.Made(id, text);
}

TEST_CASE("AgentGraph gives prompts the output of the attempt that succeeds") {
  AgentWorld world;
  const Code code = GENERATE(Code::kUnavailable, Code::kResourceExhausted);
  const std::string before = GENERATE("", "<");
  REQUIRE(world.Submit(Spec("b", {Bytes(before), Announced("a"), Bytes(">")})).ok());
  REQUIRE(world.Submit(Spec("c", {Announced("never"), Announced("a")})).ok());
  Begin(world, "a", kFirstText);
  CHECK(world.Text("b").size() > 16);
  world.End("a", absl::Status(code, "lost"));
  CHECK(world.graph.counts().announced == 2);
  CHECK(world.reported["b"].restarts == 0);

  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  CHECK(world.reported["b"].restarts == 0);
  world.Made("a", "01");
  CHECK(world.reported["b"].restarts == 1);
  CHECK(world.Text("b").empty());
  world.Made("a", "23456789ABCDEFGHIJ");
  world.End("a");
  CHECK(world.Text("b") == before + "0123456789ABCDEFGHIJ>");
  // This prompt had taken no token of the first attempt.
  world.Refuse("never", absl::InvalidArgumentError("why"));
  CHECK(world.reported["c"].restarts == 0);
  CHECK(world.Node("a").attempt == 2);
  CHECK(world.Node("b").used_attempts.at("a") == 2);
}

TEST_CASE("AgentGraph waits for another attempt for the retry delay and wait_retry") {
  AgentWorld world({.wait_retry = absl::Seconds(10)});
  for (const auto& [id, on_failure] :
       {std::pair("abort", OnFailure::kAbort), {"partial", OnFailure::kPartial}, {"instead", OnFailure::kSubstitute}}) {
    REQUIRE(world.Submit(Spec(id, {Bytes("<"), Announced("a", on_failure), Bytes(">")})).ok());
  }
  Begin(world, "a", kFirstText);
  const std::string so_far = world.Text("partial");
  world.End("a", absl::UnavailableError("lost"), absl::Seconds(5));
  world.Advance(absl::Seconds(15) - absl::Nanoseconds(1));
  CHECK(world.graph.counts().streaming == 3);
  SECTION("and an attempt without tokens changes nothing") {
    REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
    world.Advance(absl::Minutes(5));
    CHECK(world.graph.counts().streaming == 3);
    world.End("a", absl::UnavailableError("lost"), absl::Seconds(5));
    world.Advance(absl::Seconds(15));
    CHECK(world.reported["instead"].restarts == 1);
  }
  SECTION("and no attempt comes") { world.Advance(absl::Nanoseconds(1)); }
  SECTION("and another attempt is refused") {
    world.Refuse("a", absl::UnavailableError("full"), absl::Seconds(1));
    world.Advance(absl::Seconds(11) - absl::Nanoseconds(1));
    CHECK(world.graph.counts().streaming == 3);
    world.Refuse("a", absl::InvalidArgumentError("wrong"));
    CHECK(RootCauseOf(world.reported["abort"].failure)->message == "wrong");
  }
  CHECK_FALSE(world.reported["abort"].failure.ok());
  CHECK(world.Text("partial") == "<" + std::string(kFirstText) + ">");
  CHECK(world.reported["partial"].restarts == 0);
  CHECK(world.Text("partial").starts_with(so_far));
  CHECK(world.Text("instead") == "<none>");
  // The output so far is kept, as that of any failed request.
  REQUIRE(world.Submit(Spec("late", {Announced("a", OnFailure::kPartial, false)})).ok());
  CHECK(world.Text("late") == kFirstText);
  world.Advance(AgentLimits().keep_output + absl::Minutes(1));
  CHECK(world.graph.counts().kept_bytes == 0);
}

TEST_CASE("AgentGraph settles references without announced when an attempt fails") {
  AgentWorld world;
  Begin(world, "a", kFirstText);
  REQUIRE(world.Submit(Spec("waits", {Announced("a")})).ok());
  REQUIRE(world.Submit(Spec("abort", {Announced("a", OnFailure::kAbort, false)})).ok());
  REQUIRE(world.Submit(Spec("both", {Announced("a", OnFailure::kPartial, false), Bytes("+"), Announced("a")})).ok());
  world.End("a", absl::UnavailableError("lost"));
  CHECK(world.reported["abort"].failure.code() == Code::kUnavailable);
  CHECK(world.reported["waits"].failure.ok());
  // The same holds for later prompts.
  REQUIRE(world.Submit(Spec("late", {Announced("a", OnFailure::kPartial, false)})).ok());
  CHECK(world.Text("late") == kFirstText);
  REQUIRE(world.Submit(Spec("later", {Announced("a")})).ok());
  Begin(world, "a", "new");
  world.End("a");
  for (const char* id : {"waits", "later"}) CHECK(world.Text(id) == "new");
  CHECK(world.Text("both") == std::string(kFirstText) + "+new");
}

TEST_CASE("AgentGraph waits for no other attempt after a failure that may not be retried") {
  for (const Code code : {Code::kCancelled, Code::kDeadlineExceeded, Code::kInvalidArgument, Code::kInternal}) {
    AgentWorld world;
    Begin(world, "a", kFirstText);
    REQUIRE(world.Submit(Spec("b", {Announced("a")})).ok());
    world.End("a", absl::Status(code, "why"));
    CHECK(world.reported["b"].failure.code() == Code::kAborted);
    CHECK(world.graph.counts().announced == 0);
    // A further submission has the next number all the same.
    Begin(world, "a", "y");
    CHECK(world.Node("a").attempt == 2);
    world.End("a");
    Begin(world, "a", "y");
    CHECK(world.Node("a").attempt == 1);
  }
}

TEST_CASE("AgentGraph applies the timeout of a reference while it waits for another attempt") {
  AgentWorld world;
  Reference reference = Announced("a", OnFailure::kPartial);
  reference.timeout = absl::Seconds(3);
  REQUIRE(world.Submit(Spec("b", {reference, Bytes("!")})).ok());
  Begin(world, "a", kFirstText);
  world.End("a", absl::UnavailableError("lost"));
  if (GENERATE(false, true)) REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  world.Advance(absl::Seconds(3));
  CHECK(world.Text("b") == std::string(kFirstText) + "!");
}

TEST_CASE("AgentGraph uses the last attempt with a token, and names its agent") {
  const Code code = GENERATE(Code::kOk, Code::kUnavailable, Code::kCancelled, Code::kInternal);
  const bool refuse = GENERATE(false, true), timeout = GENERATE(false, true);
  CAPTURE(code, refuse, timeout);
  AgentWorld world;
  Reference reference = Announced("a", OnFailure::kPartial);
  reference.before = {AgentName(), Bytes(": ")};
  reference.after = {Bytes(" by "), AgentName()};
  if (timeout) reference.timeout = absl::Seconds(5);
  REQUIRE(world.Submit(Spec("b", {reference, Bytes("!")})).ok());
  world.Name("a", "aa");
  Begin(world, "a", kFirstText);
  world.End("a", absl::UnavailableError("lost"));
  if (refuse) world.Refuse("a", absl::UnavailableError("full"));
  world.Name("a", "bbbbbbbbbb");
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  world.graph.Made(world.Node("a"), {}, "");
  if (timeout) world.Advance(absl::Seconds(5));
  world.End("a", absl::Status(code, "why"));
  world.Advance(kRetryWait);
  const bool is_empty = code == Code::kOk && !timeout;
  CHECK(world.Text("b") == (is_empty ? "!" : absl::StrCat("aa: ", kFirstText, " by aa!")));
  CHECK(world.Node("b").used_attempts.at("a") == (is_empty ? 2 : 1));
  if (code == Code::kOk) return;
  // The output is kept for later prompts, and the attempts are counted on.
  REQUIRE(world.Submit(Spec("late", {Reference{"a", false, OnFailure::kPartial}})).ok());
  CHECK(world.Text("late") == kFirstText);
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  CHECK(world.Node("a").attempt == 3);
}

TEST_CASE("AgentGraph names the upstream of a reference whose timeout passes") {
  AgentWorld world;
  world.Name("a", "writer");
  Begin(world, "a", "y");
  Reference reference{"a"};
  reference.timeout = absl::Seconds(1);
  REQUIRE(world.Submit(Spec("b", {reference})).ok());
  world.Advance(absl::Seconds(1));
  const RootCause root = *RootCauseOf(world.reported["b"].failure);
  CHECK(root == RootCause{"a", "writer", Code::kDeadlineExceeded,
                          "the output was not complete before the reference's timeout"});
}

TEST_CASE("StreamingPrompt reports why it awaits another attempt") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("b", {Announced("a"), Announced("never")})).ok());
  const auto awaited = [&] { return world.Node("b").streaming->Awaited(1).first.at(0); };
  CHECK(awaited().failure.empty());
  world.Refuse("a", absl::ResourceExhaustedError("full"), absl::Seconds(5));
  CHECK(awaited().announced);
  CHECK(awaited().failure == "RESOURCE_EXHAUSTED: full");
  CHECK(awaited().failed_attempt == 0);
  CHECK(awaited().retry_wait == absl::Seconds(15));
  // A prompt that is submitted after the refusal.
  world.Refuse("c", absl::ResourceExhaustedError("full"), absl::Seconds(5));
  world.Advance(absl::Seconds(1));
  REQUIRE(world.Submit(Spec("d", {Announced("c")})).ok());
  CHECK(world.Node("d").streaming->Awaited(1).first.at(0).retry_wait == absl::Seconds(14));
  Begin(world, "a", "y");
  CHECK_FALSE(awaited().announced);
  CHECK(awaited().failure.empty());
  // The 100th byte is in the middle of a character.
  world.End("a", absl::UnavailableError(std::string(99, 'm') + "\u00e9"));
  CHECK(awaited().failure == "UNAVAILABLE: " + std::string(99, 'm') + "...");
  CHECK(awaited().failed_attempt == 1);
  CHECK(awaited().retry_wait == kRetryWait);
  world.Refuse("a", absl::ResourceExhaustedError("full"));
  CHECK(awaited().failure == "RESOURCE_EXHAUSTED: full");
  CHECK(awaited().failed_attempt == 0);
}

TEST_CASE("AgentGraph keeps the upstreams of a failed request for its next attempt") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("root", {Bytes("x")})).ok());
  if (GENERATE(false, true)) REQUIRE(world.Submit(Spec("c", {Announced("a")})).ok());
  REQUIRE(world.Submit(Spec("a", {Announced("root"), Announced("root")})).ok());
  REQUIRE(world.Submit(Spec("other", {Announced("root")})).ok());
  world.End("a", absl::UnavailableError("lost"));
  world.End("other", absl::CancelledError("by the client"));
  const auto is_live = [&](const RequestId& id) { return world.Node(id).output != nullptr; };
  const auto is_cancelled = [&](const RequestId& id) { return world.reported[id].failure.code() == Code::kCancelled; };
  CHECK(is_live("root"));
  SECTION("which needs them") {
    REQUIRE(world.Submit(Spec("a", {Announced("root")})).ok());
    world.Advance(kRetryWait);
    world.Made("root", "y");
    world.End("root");
    CHECK(world.Text("a") == "y");
  }
  SECTION("which needs them until it ends") {
    REQUIRE(world.Submit(Spec("a", {Announced("root")})).ok());
    world.End("a", absl::CancelledError("by the client"));
    CHECK(is_cancelled("root"));
  }
  SECTION("which does not need them") {
    Begin(world, "a", "y");
    CHECK(is_cancelled("root"));
  }
  SECTION("which is a value") {
    REQUIRE(world.Begin("a").ok());
    CHECK(is_cancelled("root"));
  }
  SECTION("which does not come") {
    world.Advance(kRetryWait - absl::Nanoseconds(1));
    CHECK(is_live("root"));
    world.Advance(absl::Nanoseconds(1));
    CHECK(is_cancelled("root"));
  }
  SECTION("which is refused and may come later") {
    world.Refuse("a", absl::UnavailableError("full"), absl::Seconds(20));
    world.Advance(absl::Seconds(20) + AgentLimits().wait_retry - absl::Nanoseconds(1));
    CHECK(is_live("root"));
    world.Advance(absl::Nanoseconds(1));
    CHECK(is_cancelled("root"));
  }
  SECTION("which is refused for good") {
    world.Refuse("a", absl::InvalidArgumentError("wrong"));
    CHECK(is_cancelled("root"));
  }
  SECTION("which is undone") {
    world.Undo(Spec("a", {Announced("root")}));
    CHECK(is_live("root"));
    world.Advance(kRetryWait);
    CHECK(is_cancelled("root"));
  }
  SECTION("and not another request with their id") {
    world.Made("root", "y");
    world.End("root");
    REQUIRE(world.Submit(Spec("root", {Bytes("x")})).ok());
    world.Advance(kRetryWait);
    CHECK(is_live("root"));
  }
  SECTION("and their own next attempt") {
    REQUIRE(world.Submit(Spec("d", {Announced("root")})).ok());
    world.End("root", absl::UnavailableError("lost"));
    REQUIRE(world.Submit(Spec("root", {Bytes("x")})).ok());
    world.End("d", absl::CancelledError("by the client"));
    CHECK(is_live("root"));
    world.Advance(kRetryWait);
    CHECK(is_cancelled("root"));
  }
}

TEST_CASE("AgentGraph keeps the upstreams of a request that fails because of another one") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("root", {Bytes("x")})).ok());
  Begin(world, "lost", "y");
  REQUIRE(world.Submit(Spec("a", {Announced("lost", OnFailure::kAbort, false), Announced("root")})).ok());
  const Code code = GENERATE(Code::kUnavailable, Code::kInternal);
  world.End("lost", absl::Status(code, "why"));
  CHECK_FALSE(world.reported["a"].failure.ok());
  CHECK((world.Node("root").output != nullptr) == (code == Code::kUnavailable));
  world.Advance(kRetryWait);
  CHECK(world.reported["root"].failure.code() == Code::kCancelled);
}

TEST_CASE("AgentGraph holds no more outputs for failed requests than its limit on references") {
  AgentWorld world({.references = 4});  // one tenant has half of them
  for (const char* root : {"r1", "r2", "r3"}) Begin(world, root, "y");
  REQUIRE(world.Submit(Spec("a", {Announced("r1"), Announced("r2")})).ok());
  world.End("a", absl::UnavailableError("lost"));
  REQUIRE(world.Submit(Spec("b", {Announced("r3")})).ok());
  world.End("b", absl::UnavailableError("lost"));
  for (const char* root : {"r1", "r2"}) CHECK(world.Node(root).output != nullptr);
  CHECK(world.reported["r3"].failure.code() == Code::kCancelled);
}

TEST_CASE("AgentGraph undoes an attempt whose outputs no longer fit into its owner's share") {
  AgentWorld world({.references = 8});
  for (const char* root : {"a\n/r", "b\n/r"}) Begin(world, root, "y");
  const auto submit = [&](const RequestId& id, const RequestId& root, int references) {
    NamedPrompt prompt = Spec(id, {});
    for (int i = 0; i < references; ++i) prompt.segments.emplace_back(Announced(root));
    return prompt;
  };
  REQUIRE(world.Submit(submit("a\n/x", "a\n/r", 4)).ok());
  world.End("a\n/x", absl::UnavailableError("lost"));
  REQUIRE(world.Submit(submit("b\n/x", "b\n/r", 2)).ok());
  world.End("b\n/x", absl::UnavailableError("lost"));
  // The first owner has half of the limit, and the second one a part of the other half.
  world.Undo(submit("a\n/x", "a\n/r", 1));
  CHECK(world.Node("a\n/r").output != nullptr);
  world.Advance(kRetryWait);
  CHECK(world.reported["a\n/r"].failure.code() == Code::kCancelled);
}

TEST_CASE("AgentGraph undoes an attempt") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("b", {Announced("a", OnFailure::kPartial), Bytes("!")})).ok());
  Begin(world, "a", kFirstText);
  world.End("a", absl::UnavailableError("lost"));
  REQUIRE(world.graph.Add(world.Node("a"), ByteTokens()).ok());
  world.graph.Undo(world.Node("a"));
  world.graph.CheckInvariants();
  world.Advance(kRetryWait);
  CHECK(world.Text("b") == std::string(kFirstText) + "!");
  Begin(world, "a", "y");
  CHECK(world.Node("a").attempt == 2);
}

}  // namespace
}  // namespace baton
