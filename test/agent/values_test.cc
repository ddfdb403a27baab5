// Values: outputs that clients write in place of a model.
#include "agent/values.h"

#include <random>

#include "absl/strings/str_replace.h"
#include "base/root_cause.h"
#include "base/strings.h"
#include "seeds.h"
#include "text/random_text.h"
#include "world/agent_world.h"

namespace baton {
namespace {

using Code = absl::StatusCode;

Reference Ref(const RequestId& upstream, OnFailure on_failure = OnFailure::kAbort, bool announced = true) {
  return {.upstream = upstream, .announced = announced, .on_failure = on_failure, .substitute = Bytes("none")};
}

NamedPrompt Around(const RequestId& id, Reference reference) {
  return Spec(id, {Bytes("<"), std::move(reference), Bytes(">")});
}

TEST_CASE("A value that is only for an unknown id changes nothing if the id was used") {
  AgentWorld world;
  const auto report = [&](const RequestId& id) {
    const auto ticket = world.values.Begin({.id = id, .if_unknown = true}, nullptr, world.now);
    if (!ticket.ok()) return ticket.status();
    world.End(*ticket, absl::AbortedError("was not sent"));
    return absl::OkStatus();
  };
  REQUIRE(world.Submit(Spec("live", {Bytes("x")})).ok());
  REQUIRE(world.Submit(Spec("ended", {Bytes("x")})).ok());
  world.End("ended", absl::CancelledError("by the client"));
  world.Refuse("refused", absl::InvalidArgumentError("why"));
  REQUIRE(world.Submit(Spec("retried", {Bytes("x")})).ok());
  world.End("retried", absl::UnavailableError("lost"));
  for (const char* id : {"live", "ended", "refused", "retried"}) CHECK(absl::IsAlreadyExists(report(id)));
  const auto reason = [&](const RequestId& id) {
    return std::string(Message(world.Submit(Spec("reads " + id, {Reference{id}}))));
  };
  CHECK(reason("ended") == "output_of 'ended': CANCELLED: by the client");
  CHECK(reason("refused") == "output_of 'refused' (agent 'writer'): INVALID_ARGUMENT: why");
  // An announced id is unknown.
  REQUIRE(world.Submit(Spec("t", {Reference{.upstream = "unsent", .announced = true}, Bytes("!")})).ok());
  CHECK(report("unsent").ok());
  CHECK(world.reported["t"].failure.code() == absl::StatusCode::kAborted);
  CHECK(absl::IsAlreadyExists(report("unsent")));
}

TEST_CASE("A value completes the prompts that refer to it, before and after it") {
  AgentWorld world;
  REQUIRE(world.Submit(Around("early", Ref("v"))).ok());
  const ValueTicket value = *world.Begin("v");
  REQUIRE(world.Submit(Around("during", Ref("v", OnFailure::kAbort, false))).ok());
  REQUIRE(world.Append(value, "42").ok());
  CHECK_FALSE(world.reported["early"].complete);
  world.End(value);
  REQUIRE(world.Submit(Around("late", Ref("v", OnFailure::kAbort, false))).ok());
  for (const char* id : {"early", "during", "late"}) CHECK(world.Text(id) == "<42>");
  CHECK(world.values.counts() == Values::Counts{});
  CHECK(world.graph.counts().kept == 1);
  const std::vector<EndedValue> ended = world.values.TakeEnded();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].spec.id == "v");
  CHECK(ended[0].status.ok());
  world.Advance(absl::Minutes(2));
  CHECK(absl::IsNotFound(world.Submit(Around("too late", Ref("v", OnFailure::kAbort, false)))));
}

TEST_CASE("A text value has the tokens of a text segment, however it is cut") {
  const std::vector<std::string> families = {"gpt2", "smollm", "llama3", "qwen2"};
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const std::string& family : families) tokenizers.push_back(GoldenTokenizer(family));
  int grew = 0;
  ForEachSeed(300, [&](uint64_t seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    AgentWorld world;
    std::string text;
    // Names of special tokens are text.
    for (int i = 0; i < 12; ++i) text += RandomText(random) + (random() % 4 == 0 ? "<|endoftext|>" : "");
    CAPTURE(text);
    for (size_t t = 0; t < tokenizers.size(); ++t) {
      NamedPrompt prompt =
          Spec(families[t], {TextIds(*tokenizers[t], "The tool: "), Ref("v"), TextIds(*tokenizers[t], "!")});
      prompt.tokenizer = tokenizers[t].get();
      REQUIRE(world.Submit(prompt).ok());
    }
    const ValueTicket value = *world.Begin("v");
    for (size_t at = 0; at < text.size();) {
      size_t end = std::min<size_t>(text.size(), at + 1 + random() % 9);
      while (!IsCharacterStart(text, end)) ++end;
      REQUIRE(world.Append(value, text.substr(at, end - at)).ok());
      at = end;
    }
    for (const std::string& family : families) grew += world.reported[family].tokens.size() > 16;
    world.End(value);
    for (size_t t = 0; t < tokenizers.size(); ++t) {
      Ids expected = TextIds(*tokenizers[t], "The tool: ");
      for (const std::string_view part : {std::string_view(text), std::string_view("!")}) {
        const Ids ids = TextIds(*tokenizers[t], part);
        expected.insert(expected.end(), ids.begin(), ids.end());
      }
      CAPTURE(families[t]);
      REQUIRE(world.reported[families[t]].complete);
      REQUIRE(world.reported[families[t]].tokens == expected);
    }
  });
  CHECK(grew > 100);  // prompts are prefilled while the text arrives
}

TEST_CASE("A value of token ids reaches its own tokenizer as ids and another as text") {
  AgentWorld world;
  REQUIRE(world.Submit(Around("same", Ref("v"))).ok());
  NamedPrompt other = Around("other", Ref("v"));
  other.tokenizer = &PairTokens();
  REQUIRE(world.Submit(other).ok());
  const ValueTicket value = *world.Begin("v", &ByteTokens());
  // The second part ends inside a character, which never becomes complete.
  REQUIRE(world.Append(value, Ids{'a', 'b', 'c', 0xC3}).ok());
  REQUIRE(world.Append(value, Ids{0xA9, 'a', 0xE2}).ok());
  world.End(value);
  CHECK(world.reported["same"].tokens == Ids{'<', 'a', 'b', 'c', 0xC3, 0xA9, 'a', 0xE2, '>'});
  const Ids text = TextIds(PairTokens(), "abc\u00e9a\ufffd");
  Ids expected = {'<'};
  expected.insert(expected.end(), text.begin(), text.end());
  expected.push_back('>');
  CHECK(world.reported["other"].tokens == expected);
}

TEST_CASE("A value that breaks off counts as failed, as OnFailure says") {
  AgentWorld world;
  REQUIRE(world.Submit(Around("abort", Ref("v"))).ok());
  REQUIRE(world.Submit(Around("partial", Ref("v", OnFailure::kPartial))).ok());
  REQUIRE(world.Submit(Around("instead", Ref("v", OnFailure::kSubstitute))).ok());
  const ValueTicket value = *world.Begin("v");
  REQUIRE(world.Append(value, "so far").ok());
  const bool late = GENERATE(false, true);
  if (late) {
    world.Advance(absl::Minutes(10));
  } else {
    world.End(value, absl::CancelledError("the client cancelled"));
  }
  const Code code = late ? Code::kDeadlineExceeded : Code::kCancelled;
  CHECK(world.reported["abort"].failure.code() == Code::kAborted);
  CHECK(RootCauseOf(world.reported["abort"].failure)->code == code);
  CHECK(world.Text("partial") == "<so far>");
  CHECK(world.Text("instead") == "<none>");
  CHECK(world.values.counts() == Values::Counts{});
  const std::vector<EndedValue> ended = world.values.TakeEnded();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].status.code() == code);
  // A client that still writes learns that it is too late, and the next value may have the id.
  CHECK(absl::IsAborted(world.Append(value, "more")));
  world.End(value);
  const ValueTicket again = *world.Begin("v");
  REQUIRE(world.Append(again, "whole").ok());
  world.End(again);
  REQUIRE(world.Submit(Around("new", Ref("v"))).ok());
  CHECK(world.Text("new") == "<whole>");
}

TEST_CASE("The id of a live or complete value cannot be used again") {
  AgentWorld world;
  const ValueTicket value = *world.Begin("v");
  CHECK(absl::IsAlreadyExists(world.Begin("v").status()));
  CHECK(absl::IsAlreadyExists(world.Submit(Spec("v", {Bytes("x")}))));
  REQUIRE(world.Append(value, "once").ok());
  world.End(value);
  CHECK(absl::IsAlreadyExists(world.Begin("v").status()));
  CHECK(absl::IsAlreadyExists(world.Submit(Spec("v", {Bytes("x")}))));
  REQUIRE(world.Submit(Around("down", Ref("v"))).ok());
  CHECK(world.Text("down") == "<once>");
  // A value is no second output of a request either.
  REQUIRE(world.Submit(Spec("r", {Bytes("x")})).ok());
  CHECK(absl::IsAlreadyExists(world.Begin("r").status()));
  world.End("r");
  CHECK(absl::IsAlreadyExists(world.Begin("r").status()));
  world.Advance(absl::Minutes(2));
  CHECK(world.Begin("v").ok());
}

TEST_CASE("A refused value counts as the refused submission of an announced request") {
  AgentWorld world({}, {.bytes = 8, .live_bytes = 32, .live = 4});
  REQUIRE(world.Submit(Around("down", Ref("long"))).ok());
  const ValueTicket longer = *world.Begin("long");
  REQUIRE(world.Append(longer, "12345678").ok());
  const absl::Status refused = world.Append(longer, "9");
  CHECK(CodeAndMessage(refused) == "INVALID_ARGUMENT: text: 9 bytes, limit 8 for one value (a token id counts as 4)");
  CHECK(world.reported["down"].failure.code() == Code::kAborted);
  CHECK(RootCauseOf(world.reported["down"].failure)->code == Code::kInvalidArgument);

  REQUIRE(world.Begin("a").ok());
  REQUIRE(world.Begin("b").ok());
  REQUIRE(world.Submit(Around("waits", Ref("c"))).ok());
  const absl::Status full = world.Begin("c").status();
  CHECK(CodeAndMessage(full) ==
        "RESOURCE_EXHAUSTED: values: 2 are not complete, 2 of them of this tenant, limit 4, of which a tenant may have "
        "as many as remain for others");
  CHECK(world.reported["waits"].failure.ok());  // for another attempt
  CHECK(world.Begin("d", nullptr, "other").ok());
  world.Advance(kRetryWait - absl::Nanoseconds(1));
  CHECK(world.reported["waits"].failure.ok());
  world.Advance(absl::Nanoseconds(1));
  CHECK(world.reported["waits"].failure.code() == Code::kAborted);
}

TEST_CASE("The bytes of live values are bounded for all and for each tenant") {
  AgentWorld world({}, {.bytes = 64, .live_bytes = 40});
  const ValueTicket one = *world.Begin("one"), other = *world.Begin("other", nullptr, "tenant");
  REQUIRE(world.Append(one, std::string(20, 'x')).ok());
  CHECK(absl::IsResourceExhausted(world.Append(one, "y")));
  CHECK(world.values.counts() == Values::Counts{.live = 1});
  REQUIRE(world.Append(other, std::string(20, 'x')).ok());
  const ValueTicket again = *world.Begin("again");
  CHECK(absl::IsResourceExhausted(world.Append(again, std::string(11, 'x'))));
  world.End(other);
  CHECK(world.values.counts() == Values::Counts{});
}

TEST_CASE("A value of another cache domain is unknown") {
  AgentWorld world;
  world.End(*world.Begin("salt/v"));
  const absl::Status there = world.Submit(Around("down", Ref("v", OnFailure::kAbort, false)));
  const absl::Status nowhere = world.Submit(Around("down", Ref("w", OnFailure::kAbort, false)));
  CHECK(absl::IsNotFound(there));
  CHECK(absl::StrReplaceAll(std::string(there.message()), {{"'v'", "'w'"}}) == nowhere.message());
}

TEST_CASE("A part group without text vanishes for an empty value") {
  AgentWorld world;
  world.Name("down", "reader");
  Reference group = Ref("v");
  group.before = {Bytes("["), AgentName(), Bytes("] ")};
  REQUIRE(world.Submit(Around("down", group)).ok());
  const ValueTicket value = *world.Begin("v");
  const bool empty = GENERATE(false, true);
  REQUIRE(world.Append(value, empty ? "" : "x").ok());
  world.End(value);
  CHECK(world.Text("down") == (empty ? "<>" : "<[tool] x>"));
}

TEST_CASE("Announced ids that are never used expire, and values fulfil the others") {
  AgentWorld world;
  for (int i = 0; i < 2000; ++i) {
    REQUIRE(world.graph.counts().announced == i);
    REQUIRE(world.Submit(Around(absl::StrCat("down", i), Ref(absl::StrCat("v", i)))).ok());
  }
  const ValueTicket value = *world.Begin("v500");
  world.End(value);
  CHECK(world.Text("down500") == "<>");
  world.Advance(absl::Minutes(2));
  CHECK(world.graph.counts().announced == 0);
  CHECK(world.graph.counts().streaming == 0);
}

}  // namespace
}  // namespace baton
