#include "agent/agent_graph.h"

#include <algorithm>

#include "base/strings.h"
#include "world/agent_world.h"

namespace baton {
namespace {

using Code = absl::StatusCode;

TEST_CASE("AgentGraph completes a prompt without references at once") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("one "), Bytes("two")})).ok());
  CHECK(world.Text("a") == "one two");
  CHECK(world.reported["a"].complete);
}

TEST_CASE("AgentGraph reports whole blocks, and the rest when the upstream ends") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  REQUIRE(world.Submit(Spec("b", {Bytes("0123456789"), Reference{"a"}, Bytes("!")})).ok());
  CHECK(world.Text("b").empty());
  world.Made("a", "abcde");
  CHECK(world.Text("b").empty());
  world.Made("a", "f");
  // The last token gets no KV in prefill, and token 16 may be the last.
  CHECK(world.Text("b").empty());
  world.Made("a", "gh");
  CHECK(world.Text("b") == "0123456789abcdefg");
  world.End("a");
  CHECK(world.Text("b") == "0123456789abcdefgh!");
  CHECK(world.reported["b"].complete);
}

TEST_CASE("AgentGraph reports references in prompt order whichever output ends first") {
  AgentWorld world;
  for (const char* id : {"a", "b"}) REQUIRE(world.Submit(Spec(id, {Bytes("x")})).ok());
  REQUIRE(world.Submit(Spec("c", {Reference{"a"}, Bytes("+"), Reference{"b"}})).ok());
  world.Made("b", std::string(40, 'b'));
  world.End("b");
  CHECK(world.Text("c").empty());
  world.Made("a", std::string(18, 'a'));
  CHECK(world.Text("c") == std::string(17, 'a'));
  world.End("a");
  CHECK(world.Text("c") == std::string(18, 'a') + "+" + std::string(40, 'b'));
}

TEST_CASE("AgentGraph merges increments that arrive together") {
  AgentWorld world;
  for (const char* id : {"a", "b", "c"}) {
    REQUIRE(world
                .Submit(Spec(id, id == std::string("a") ? std::vector<PromptSegment>{Bytes("x")}
                                                        : std::vector<PromptSegment>{Reference{"a"}}))
                .ok());
  }
  world.graph.Made(world.Node("a"), TextIds(ByteTokens(), std::string(40, 'a')), std::string(40, 'a'));
  world.graph.Ended(world.Node("a"), absl::OkStatus(), world.now);
  const std::vector<AgentAction> actions = world.graph.TakeActions();
  REQUIRE(actions.size() == 2);
  for (const AgentAction& action : actions) {
    CHECK(std::get<PromptIncrement>(action).complete);
    CHECK(std::get<PromptIncrement>(action).tokens.size() == 40);
  }
}

TEST_CASE("AgentGraph fills references in order of completion under Join::kArrival") {
  AgentWorld world;
  for (const char* id : {"a", "b"}) REQUIRE(world.Submit(Spec(id, {Bytes("x")})).ok());
  NamedPrompt spec = Spec("c", {Bytes("1:"), Reference{"a"}, Bytes(" 2:"), Reference{"b"}});
  auto& first = std::get<Reference>(spec.segments[1]);
  first.on_failure = OnFailure::kSubstitute;
  first.substitute = Bytes("other");
  spec.join = Join::kArrival;
  REQUIRE(world.Submit(spec).ok());
  world.Made("a", std::string(20, 'a'));
  CHECK(world.Text("c").empty());
  world.Made("b", std::string(14, 'b'));
  world.End("b");
  // Output "a" gets the last position, and its tokens are reported as they arrive.
  CHECK(world.Text("c") == "1:" + std::string(14, 'b') + " 2:" + std::string(14, 'a'));
  world.Made("a", std::string(10, 'a'));
  CHECK(world.Text("c") == "1:" + std::string(14, 'b') + " 2:" + std::string(30, 'a'));
  CHECK_FALSE(world.reported["c"].complete);
  SECTION("output \"a\" ends") {
    world.End("a");
    CHECK(world.Text("c") == "1:" + std::string(14, 'b') + " 2:" + std::string(30, 'a'));
    CHECK(world.reported["c"].restarts == 0);
  }
  SECTION("output \"a\" fails, and its substitute replaces it") {
    world.End("a", absl::InternalError("broken"));
    CHECK(world.Text("c") == "1:" + std::string(14, 'b') + " 2:other");
    CHECK(world.reported["c"].restarts == 1);
  }
  CHECK(world.reported["c"].complete);
}

TEST_CASE("Prompt stops assembly when it exceeds its limit") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  world.Made("a", std::string(300, 'a'));
  world.End("a");
  NamedPrompt spec = Spec("b", std::vector<PromptSegment>(4000, Reference{"a"}));
  spec.most_tokens = 1000;
  spec.most_tokens_reason = " (why)";
  const absl::Status refused = world.Submit(spec);
  CHECK(Message(refused) == "prompt: with the outputs it refers to it has at least 1200 tokens, limit 1000 (why)");
}

TEST_CASE("Output withholds tokens that a stop string may remove") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  REQUIRE(world.Submit(Spec("b", {Bytes("0123456789abcd"), Reference{"a"}})).ok());
  world.Made("a", "e", "e");
  world.Made("a", "\nEN", "");  // may be the start of "\nEND"
  CHECK(world.Text("b").empty());
  world.Made("a", "d", "\nENd");
  CHECK(world.Text("b") == "0123456789abcde\nE");
  world.Made("a", "f\nEND", "f");
  world.End("a");
  CHECK(world.Text("b") == "0123456789abcde\nENdf");
}

TEST_CASE("Output encodes the rest of a token that a stop string cuts") {
  AgentWorld world;
  NamedPrompt upstream = Spec("a", {Bytes("x")});
  upstream.tokenizer = &PairTokens();
  NamedPrompt downstream = Spec("b", {Reference{"a"}});
  downstream.tokenizer = &PairTokens();
  REQUIRE(world.Submit(upstream).ok());
  REQUIRE(world.Submit(downstream).ok());
  const Ids made = TextIds(PairTokens(), "abab");
  REQUIRE(made.size() == 1);
  // The stop string is "b", after "aba".
  world.graph.Made(world.Node("a"), made, "aba");
  world.End("a");
  CHECK(world.reported["b"].tokens == TextIds(PairTokens(), "aba"));
}

TEST_CASE("Output keeps tokens that continue a character of its request's prompt") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x\xC3")})).ok());
  REQUIRE(world.Submit(Spec("b", {Bytes("0123456789abcde"), Reference{"a"}})).ok());
  world.graph.BeginAfter(world.Node("a"), TextIds(ByteTokens(), "\xC3"), Thinking::kNone);
  SECTION("when the output continues it") {
    world.Made("a", "\xA9", "é");
    world.Made("a", "f");
    world.End("a");
    CHECK(world.Text("b") ==
          "0123456789abcde\xA9"
          "f");
  }
  SECTION("when the output breaks it") {
    world.Made("a", "f", "\uFFFDf");
    world.End("a");
    CHECK(world.Text("b") == "0123456789abcdef");
  }
  SECTION("when the output has no tokens") {
    world.Made("a", "", "\uFFFD");
    world.End("a");
    CHECK(world.Text("b") == "0123456789abcde");
  }
}

TEST_CASE("Output encodes its text for a prompt with another tokenizer") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  NamedPrompt downstream = Spec("b", {Reference{"a"}});
  downstream.tokenizer = &PairTokens();
  REQUIRE(world.Submit(downstream).ok());
  std::string text;
  for (int i = 0; i < 60; ++i) {
    const std::string part(1, "ab c"[i % 4]);
    world.Made("a", part);
    text += part;
  }
  const size_t early = world.reported["b"].tokens.size();
  CHECK(early >= 16);
  world.End("a");
  CHECK(world.reported["b"].tokens == TextIds(PairTokens(), text));
  CHECK(early < world.reported["b"].tokens.size());
}

TEST_CASE("AgentGraph keeps an output for keep_output after its end") {
  AgentWorld world({.keep_output = absl::Seconds(10)});
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  world.Made("a", "hello");
  world.End("a");
  world.Advance(absl::Seconds(9));
  REQUIRE(world.Submit(Spec("b", {Reference{"a"}, Bytes("!")})).ok());
  CHECK(world.Text("b") == "hello!");
  world.Advance(absl::Seconds(2));
  CHECK(world.Submit(Spec("c", {Reference{"a"}})).code() == Code::kNotFound);
  CHECK(world.graph.counts().kept == 0);
}

TEST_CASE("AgentGraph keeps an output for a streaming prompt that reaches it later") {
  AgentWorld world({.keep_output = absl::Seconds(10)});
  for (const char* id : {"a", "b"}) REQUIRE(world.Submit(Spec(id, {Bytes("x")})).ok());
  REQUIRE(world.Submit(Spec("c", {Reference{"a"}, Reference{"b"}})).ok());
  world.Made("b", "late");
  world.End("b");
  world.Advance(absl::Seconds(100));
  CHECK(world.Submit(Spec("b", {Bytes("x")})).code() == Code::kAlreadyExists);
  world.End("a");
  CHECK(world.Text("c") == "late");
}

TEST_CASE("AgentGraph drops the oldest kept outputs when they exceed kept_bytes") {
  AgentWorld world({.kept_bytes = 5000});
  for (const char* id : {"a", "b", "c"}) {
    REQUIRE(world.Submit(Spec(id, {Bytes("x")})).ok());
    world.Made(id, std::string(400, 'x'));
    world.End(id);
    world.Advance(absl::Milliseconds(1));
  }
  CHECK(world.graph.counts().kept_bytes <= 5000);
  CHECK(world.Submit(Spec("r", {Reference{"a"}})).code() == Code::kNotFound);
  CHECK(world.Submit(Spec("r", {Reference{"c"}})).ok());
}

TEST_CASE("AgentGraph accepts references to announced requests and refuses unknown ones") {
  AgentWorld world;
  CHECK(world.Submit(Spec("b", {Reference{"a"}})).code() == Code::kNotFound);
  REQUIRE(world.Submit(Spec("b", {Reference{.upstream = "a", .announced = true}})).ok());
  CHECK(world.graph.counts().announced == 1);
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  CHECK(world.graph.counts().announced == 0);
  world.Made("a", "y");
  world.End("a");
  CHECK(world.Text("b") == "y");
}

TEST_CASE("AgentGraph fails prompts when an announced request is not submitted") {
  AgentWorld world({.wait_announced = absl::Seconds(5)});
  REQUIRE(world.Submit(Spec("b", {Reference{.upstream = "a", .announced = true}})).ok());
  REQUIRE(world
              .Submit(Spec("c", {Reference{.upstream = "a",
                                           .announced = true,
                                           .on_failure = OnFailure::kSubstitute,
                                           .substitute = Bytes("none")}}))
              .ok());
  world.Advance(absl::Seconds(6));
  CHECK(world.reported["b"].failure.code() == Code::kAborted);
  CHECK(world.Text("c") == "none");
  CHECK(world.graph.counts().announced == 0);
}

TEST_CASE("AgentGraph refuses cycles and references of a request to itself") {
  AgentWorld world;
  CHECK(world.Submit(Spec("a", {Reference{.upstream = "a", .announced = true}})).code() == Code::kInvalidArgument);
  REQUIRE(world.Submit(Spec("a", {Reference{.upstream = "b", .announced = true}})).ok());
  REQUIRE(world.Submit(Spec("b", {Reference{.upstream = "c", .announced = true}})).ok());
  CHECK(world.Submit(Spec("c", {Bytes("x"), Reference{"a"}})).code() == Code::kInvalidArgument);
  CHECK(world.Submit(Spec("c", {Bytes("x")})).ok());
}

TEST_CASE("AgentGraph does not find requests of another cache domain") {
  CHECK(ScopedId("", "a") == "a");
  CHECK(ScopedId("x/y", "a") == "x/y/a");
  CHECK(NameOf("x/y/a") == "a");
  AgentWorld world;
  const RequestId theirs = ScopedId("tenant", "a");
  REQUIRE(world.Submit(Spec(theirs, {Bytes("x")})).ok());
  const absl::Status unknown = world.Submit(Spec("b", {Reference{"a"}}));
  CHECK(unknown.code() == Code::kNotFound);
  const absl::Status twice = world.Submit(Spec(theirs, {Bytes("x")}));
  CHECK(twice.code() == Code::kAlreadyExists);
  CHECK(twice.message().find("tenant") == absl::string_view::npos);
  // An announcement holds for its own cache domain only.
  REQUIRE(world.Submit(Spec("b", {Reference{.upstream = "z", .announced = true}})).ok());
  REQUIRE(world.Submit(Spec(ScopedId("tenant", "z"), {Bytes("x")})).ok());
  world.Made(ScopedId("tenant", "z"), "theirs");
  world.End(ScopedId("tenant", "z"));
  CHECK_FALSE(world.reported["b"].complete);
  REQUIRE(world.Submit(Spec("z", {Bytes("x")})).ok());
  world.Made("z", "ours");
  world.End("z");
  CHECK(world.Text("b") == "ours");
}

TEST_CASE("AgentGraph keeps an announcement when its request is refused") {
  AgentWorld world({.wait_announced = absl::Seconds(5)});
  REQUIRE(world.Submit(Spec("b", {Reference{.upstream = "a", .announced = true}})).ok());
  world.Advance(absl::Seconds(3));
  // Refused by the graph.
  NamedPrompt longer = Spec("a", {Bytes("four"), Reference{.upstream = "c", .announced = true}});
  longer.most_tokens = 3;
  CHECK(world.Submit(longer).code() == Code::kInvalidArgument);
  // Refused by the caller of Add.
  REQUIRE(world.graph.Add(world.Node("a"), ByteTokens()).ok());
  world.graph.Undo(world.Node("a"));
  REQUIRE(world.Submit(Spec("a", {Reference{.upstream = "c", .announced = true}})).ok());
  world.graph.Undo(world.Node("a"));
  CHECK(world.graph.counts().announced == 1);
  CHECK(world.graph.counts().streaming == 1);

  SECTION("a later request with the id serves the waiting prompt") {
    REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
    world.Made("a", "y");
    world.End("a");
    CHECK(world.Text("b") == "y");
  }
  SECTION("the waiting prompt fails at the time that held before the refusals") {
    world.Advance(absl::Seconds(2));
    CHECK(world.reported["b"].failure.code() == Code::kAborted);
  }
}

TEST_CASE("AgentGraph keeps an earlier output of an id when a request is refused") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  world.Made("a", "kept");
  world.End("a");
  REQUIRE(world.graph.Add(world.Node("a"), ByteTokens()).ok());
  CHECK(world.graph.counts().kept == 0);
  world.graph.Undo(world.Node("a"));
  // Has no effect.
  world.graph.Undo(world.Node("a"));
  REQUIRE(world.Submit(Spec("b", {Reference{"a"}})).ok());
  CHECK(world.Text("b") == "kept");
}

TEST_CASE("AgentGraph applies OnFailure of each reference when its upstream fails") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  REQUIRE(world.Submit(Spec("abort", {Reference{"a"}})).ok());
  REQUIRE(world.Submit(Spec("part", {Reference{.upstream = "a", .on_failure = OnFailure::kPartial}, Bytes(".")})).ok());
  REQUIRE(world
              .Submit(Spec("other", {Bytes(">"), Reference{.upstream = "a",
                                                           .on_failure = OnFailure::kSubstitute,
                                                           .substitute = Bytes("sorry")}}))
              .ok());
  REQUIRE(world.Submit(Spec("after", {Reference{"abort"}})).ok());
  world.Made("a", "0123456789abcdef01");
  CHECK(world.Text("other") == ">0123456789abcdef");
  world.End("a", absl::UnavailableError("the worker died"));
  CHECK(world.reported["abort"].failure.code() == Code::kUnavailable);
  CHECK(world.reported["after"].failure.code() == Code::kUnavailable);
  CHECK(world.Text("part") == "0123456789abcdef01.");
  CHECK(world.Text("other") == ">sorry");
  CHECK(world.reported["other"].restarts == 1);
  CHECK(world.reported["other"].complete);
}

Reference Substitute(const RequestId& upstream, std::string_view text) {
  return {.upstream = upstream, .on_failure = OnFailure::kSubstitute, .substitute = Bytes(text)};
}

TEST_CASE("AgentGraph does not restart a new prompt whose upstreams have ended") {
  AgentWorld world;
  for (const char* id : {"failed", "good"}) REQUIRE(world.Submit(Spec(id, {Bytes("x")})).ok());
  world.Made("failed", std::string(40, 'f'));
  world.End("failed", absl::CancelledError("by its client"));
  world.Made("good", std::string(20, 'g'));
  world.End("good");
  REQUIRE(world.Submit(Spec("after", {Bytes("a"), Reference{"good"}, Bytes("c"), Substitute("failed", "x")})).ok());
  CHECK(world.Text("after") == "a" + std::string(20, 'g') + "cx");
  REQUIRE(world.Submit(Spec("twice", {Substitute("failed", "one"), Bytes(" "), Substitute("failed", "two")})).ok());
  CHECK(world.Text("twice") == "one two");
  for (const char* id : {"after", "twice"}) {
    CHECK(world.reported[id].complete);
    CHECK(world.reported[id].restarts == 0);
  }
}

TEST_CASE("AgentGraph restarts a prompt once when two references to one output fail") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  REQUIRE(world.Submit(Spec("b", {Bytes(">"), Substitute("a", "one"), Bytes(" "), Substitute("a", "two")})).ok());
  world.Made("a", std::string(40, 'a'));
  CHECK(world.Text("b").size() == 33);
  world.End("a", absl::UnavailableError("the worker died"));
  CHECK(world.Text("b") == ">one two");
  CHECK(world.reported["b"].restarts == 1);
}

TEST_CASE("AgentGraph bounds the references of all streaming prompts together") {
  AgentWorld world({.references = 10});  // one tenant has half of them
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  REQUIRE(world.Submit(Spec("b", {Reference{"a"}, Reference{"a"}, Reference{"a"}})).ok());
  CHECK(world.Submit(Spec("c", {Reference{"a"}, Reference{"a"}, Reference{"a"}})).code() == Code::kResourceExhausted);
  REQUIRE(world.Submit(Spec("c", {Reference{"a"}, Reference{"a"}})).ok());
  CHECK(world.graph.counts().references == 5);
  world.Made("a", "x");
  world.End("a");
  CHECK(world.Text("b") == "xxx");
  CHECK(world.graph.counts().references == 0);
}

TEST_CASE("AgentGraph leaves announced requests and references for other tenants") {
  AgentWorld world({.announced = 4, .references = 8});
  const auto submit = [&](const RequestId& id, std::initializer_list<const char*> upstreams) {
    NamedPrompt prompt = Spec(id, {Bytes("x")});
    for (const char* upstream : upstreams) {
      prompt.segments.emplace_back(Reference{.upstream = upstream, .announced = true});
    }
    return world.Submit(prompt);
  };
  // Ids of a tenant begin with its name and a line feed.
  REQUIRE(submit("loud\n/1", {"loud\n/a", "loud\n/b"}).ok());
  const absl::Status full = submit("loud\n/2", {"loud\ns/c"});
  CHECK(CodeAndMessage(full) ==
        "RESOURCE_EXHAUSTED: output_of: the router has too many announced requests of prompts that wait; this prompt "
        "adds 1 to 2 of this tenant, which may have as many as remain for others, of 4");
  REQUIRE(submit("loud\n/3", {"loud\n/a", "loud\n/b"}).ok());
  CHECK(submit("loud\n/4", {"loud\n/a"}).message().find("references") != std::string::npos);
  CHECK(submit("quiet\n/1", {"quiet\n/a"}).ok());
  // Requests that die count as announced ones for a while.
  REQUIRE(submit("loud\n/5", {}).ok());
  world.End("loud\n/5", absl::UnavailableError("lost"));
  CHECK(world.graph.counts().announced == 3);
}

TEST_CASE("AgentGraph fails only the reference whose timeout has passed") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  const auto timed = [](OnFailure on_failure) {
    return Reference{.upstream = "a", .on_failure = on_failure, .timeout = absl::Seconds(3)};
  };
  REQUIRE(world.Submit(Spec("abort", {timed(OnFailure::kAbort)})).ok());
  REQUIRE(world.Submit(Spec("part", {timed(OnFailure::kPartial)})).ok());
  REQUIRE(world.Submit(Spec("waits", {Reference{"a"}})).ok());
  world.Made("a", "ab");
  world.Advance(absl::Seconds(4));
  CHECK(world.reported["abort"].failure.code() == Code::kAborted);
  CHECK(world.Text("part") == "ab");
  CHECK(world.reported["part"].complete);
  world.Made("a", "c");
  world.End("a");
  CHECK(world.Text("waits") == "abc");
  CHECK(world.Text("part") == "ab");
}

TEST_CASE("AgentGraph fails a prompt that exceeds its limit or stays empty") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  NamedPrompt spec = Spec("b", {Reference{"a"}});
  spec.most_tokens = 20;
  REQUIRE(world.Submit(spec).ok());
  REQUIRE(world.Submit(Spec("c", {Reference{"a"}})).ok());
  world.Made("a", std::string(21, 'x'));
  CHECK(world.reported["b"].failure.code() == Code::kInvalidArgument);
  REQUIRE(world.Submit(Spec("e", {Bytes("x")})).ok());
  REQUIRE(world.Submit(Spec("d", {Reference{"e"}})).ok());
  world.End("e");
  CHECK(world.reported["d"].failure.code() == Code::kInvalidArgument);
}

TEST_CASE("AgentGraph serves a thousand downstream prompts when one of them ends") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  for (int i = 0; i < 1000; ++i) REQUIRE(world.Submit(Spec(absl::StrCat("r", i), {Reference{"a"}})).ok());
  world.Made("a", "some ");
  world.End("r500", absl::CancelledError("by its client"));
  world.Made("a", "text");
  world.End("a");
  for (int i = 0; i < 1000; ++i) {
    if (i != 500) REQUIRE(world.Text(absl::StrCat("r", i)) == "some text");
  }
  CHECK(world.graph.counts().streaming == 0);
}

TEST_CASE("AgentGraph fails downstream prompts when a request fails at submission") {
  AgentWorld world;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  world.End("a", absl::InternalError("broken"));
  REQUIRE(world.Submit(Spec("early", {Reference{.upstream = "b", .announced = true}})).ok());
  CHECK(world.Submit(Spec("b", {Bytes("y"), Reference{"a"}})).code() == Code::kAborted);
  CHECK(world.reported["early"].failure.code() == Code::kAborted);
  CHECK(world.Submit(Spec("c", {Bytes("z"), Reference{"b"}})).code() == Code::kAborted);
  const Reference instead{.upstream = "b", .on_failure = OnFailure::kSubstitute, .substitute = Bytes("none")};
  REQUIRE(world.Submit(Spec("d", {Bytes("z"), instead})).ok());
  CHECK(world.Text("d") == "znone");
}

}  // namespace
}  // namespace baton
