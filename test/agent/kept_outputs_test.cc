// Bounds on the memory of outputs that no live request generates.
#include "agent/scoped_id.h"
#include "world/agent_world.h"

namespace baton {
namespace {

using Code = absl::StatusCode;

constexpr int64_t kKeptBytes = 40000;  // with which about 20 outputs of kWords fit
const std::string kWords = [] {
  std::string words;
  for (int i = 0; i < 500; ++i) words += " w";
  return words;
}();

Reference Later(const RequestId& upstream, OnFailure on_failure = OnFailure::kAbort) {
  return {.upstream = upstream, .announced = true, .on_failure = on_failure};
}

// Writes a value of a tenant, and ends it.
void Keep(AgentWorld& world, const RequestId& id, const absl::Status& status = absl::OkStatus()) {
  const ValueTicket value = *world.Begin(id);
  REQUIRE(world.Append(value, kWords).ok());
  world.End(value, status);
  world.Advance(absl::Milliseconds(1));
}

bool IsKept(AgentWorld& world, const RequestId& id) {
  const RequestId reader = ScopedId("reader", id.substr(id.rfind('/') + 1) + absl::FormatTime(world.now));
  world.Advance(absl::Milliseconds(1));
  return world.Submit(Spec(reader, {Reference{id}, Bytes("!")})).ok();
}

TEST_CASE("AgentGraph drops kept outputs of the owner that has the most bytes") {
  AgentWorld world({.kept_bytes = kKeptBytes});
  for (int i = 0; i < 5; ++i) Keep(world, absl::StrCat("b\n/", i));
  const bool fail = GENERATE(false, true);  // failed attempts may be repeated
  for (int i = 0; i < 100; ++i) {
    Keep(world, absl::StrCat("a\n/", i), fail ? absl::ResourceExhaustedError("full") : absl::OkStatus());
    REQUIRE(world.graph.counts().kept_bytes <= kKeptBytes);
  }
  CHECK(world.graph.counts().announced < 30);
  for (int i = 0; i < 5; ++i) CHECK(IsKept(world, absl::StrCat("b\n/", i)));
  CHECK_FALSE(IsKept(world, "a\n/0"));
  CHECK(IsKept(world, "a\n/99") != fail);
  // Now the other owner has more.
  for (int i = 5; i < 40; ++i) Keep(world, absl::StrCat("b\n/", i));
  CHECK_FALSE(IsKept(world, "b\n/0"));
  CHECK(world.graph.counts().kept_bytes <= kKeptBytes);
}

TEST_CASE("AgentGraph fails prompts whose outputs exceed their owner's share") {
  AgentWorld world({.kept_bytes = kKeptBytes});
  REQUIRE(world.Submit(Spec("b\n/live", {Bytes("x")})).ok());
  Keep(world, "b\n/0");
  REQUIRE(world.Submit(Spec("b\n/waits", {Later("b\n/live"), Reference{"b\n/0"}})).ok());
  const bool fail = GENERATE(false, true);
  for (int i = 0; i < 100; ++i) {
    const RequestId id = absl::StrCat("a\n/", i);
    REQUIRE(world.Submit(Spec(id + "r", {Later("a\n/never"), Later(id, OnFailure::kPartial)})).ok());
    Keep(world, id, fail ? absl::ResourceExhaustedError("full") : absl::OkStatus());
    REQUIRE(world.graph.counts().kept_bytes <= kKeptBytes);
  }
  CHECK(world.reported["a\n/0r"].failure.code() == Code::kResourceExhausted);
  CHECK(world.reported["a\n/0r"].failure.message() ==
        "prompt: the outputs that waiting prompts of this tenant refer to need more than its share of 0 MiB");
  CHECK(world.reported["a\n/99r"].failure.ok());
  world.End("b\n/live");
  CHECK(world.Text("b\n/waits") == kWords);
}

TEST_CASE("AgentGraph fails no prompt that has a copy of the output that it drops") {
  AgentWorld world({.kept_bytes = kKeptBytes});
  const OnFailure on_failure = GENERATE(OnFailure::kPartial, OnFailure::kSubstitute);
  for (int i = 0; i < 100; ++i) {
    const RequestId id = absl::StrCat(i);
    const ValueTicket value = *world.Begin(id);
    REQUIRE(world.Append(value, kWords).ok());
    // It does not wait for another attempt, because it did not announce the value.
    Reference reference{.upstream = id, .on_failure = on_failure};
    reference.substitute = Bytes("none");
    REQUIRE(world.Submit(Spec(id + "r", {reference, Later("never")})).ok());
    world.End(value, absl::UnavailableError("lost"));
    REQUIRE(world.graph.counts().kept_bytes <= kKeptBytes);
  }
  REQUIRE(world.Submit(Spec("never", {Bytes("x")})).ok());
  world.End("never");
  for (int i = 0; i < 100; ++i) {
    CHECK(world.Text(absl::StrCat(i, "r")) == (on_failure == OnFailure::kPartial ? kWords : "none"));
  }
}

TEST_CASE("AgentGraph drops outputs that no prompt refers to before others") {
  AgentWorld world({.kept_bytes = kKeptBytes});
  REQUIRE(world.Submit(Spec("live", {Bytes("x")})).ok());
  Keep(world, "first");
  REQUIRE(world.Submit(Spec("waits", {Later("live"), Reference{"first"}})).ok());
  for (int i = 0; i < 100; ++i) Keep(world, absl::StrCat(i));
  world.End("live");
  CHECK(world.Text("waits") == kWords);
  // It is the oldest, and no prompt refers to it now.
  Keep(world, "last");
  CHECK_FALSE(IsKept(world, "first"));
}

TEST_CASE("AgentGraph bounds the outputs of failed attempts that live requests have") {
  AgentWorld world({.kept_bytes = kKeptBytes});
  std::vector<ValueTicket> second;
  for (int i = 0; i < 100; ++i) {
    const RequestId id = absl::StrCat(i);
    REQUIRE(world.Submit(Spec(id + "r", {Later(id, OnFailure::kPartial)})).ok());
    Keep(world, id, absl::ResourceExhaustedError("full"));
    second.push_back(*world.Begin(id));
    REQUIRE(world.graph.counts().kept_bytes <= kKeptBytes);
  }
  int restarts = 0;
  for (int i = 0; i < 100; ++i) {
    const RequestId reader = absl::StrCat(i, "r");
    CHECK(world.reported[reader].failure.ok());
    restarts += world.reported[reader].restarts;
    REQUIRE(world.Append(second[static_cast<size_t>(i)], "new").ok());
    world.End(second[static_cast<size_t>(i)]);
    CHECK(world.Text(reader) == "new");
  }
  CHECK(restarts > 50);
}

TEST_CASE("AgentGraph counts the encodings of kept outputs") {
  AgentWorld world({.kept_bytes = kKeptBytes});
  for (int i = 0; i < 10; ++i) Keep(world, absl::StrCat(i));
  const int64_t texts = world.graph.counts().kept_bytes;
  const bool waits = GENERATE(false, true);
  for (int i = 0; i < 10; ++i) {
    NamedPrompt reader = Spec(absl::StrCat(i, "r"), {Reference{absl::StrCat(i)}});
    if (waits) reader.segments.emplace_back(Later("never"));
    if (!world.Submit(reader).ok()) break;  // its output is dropped already
    world.Advance(absl::ZeroDuration());
    const int64_t encoding = std::ssize(kWords) * int64_t{sizeof(TokenId)};
    if (i == 0) CHECK(world.graph.counts().kept_bytes >= texts + encoding);
    CHECK(world.graph.counts().kept_bytes <= kKeptBytes);
  }
  CHECK(world.graph.counts().kept < 10);
}

// Counts the bytes that it encodes.
class CountingTokenizer final : public Tokenizer {
 public:
  std::vector<TokenId> Encode(std::string_view text, SpecialTokens special) const override {
    encoded += text.size();
    return inner_.Encode(text, special);
  }
  size_t EncodeSealed(std::string_view text, std::vector<TokenId>& ids) const override {
    encoded += text.size();
    return inner_.EncodeSealed(text, ids);
  }
  std::span<const TokenId> prompt_prefix() const override { return inner_.prompt_prefix(); }
  std::string_view TokenBytes(TokenId id) const override { return inner_.TokenBytes(id); }
  bool IsSpecial(TokenId id) const override { return inner_.IsSpecial(id); }
  int64_t vocab_size() const override { return inner_.vocab_size(); }
  int64_t max_bytes_per_token() const override { return inner_.max_bytes_per_token(); }
  int64_t FewestTokens(std::string_view text) const override { return inner_.FewestTokens(text); }
  const Digest& digest() const override { return inner_.digest(); }

  mutable size_t encoded = 0;

 private:
  const Tokenizer& inner_ = PairTokens();
};

TEST_CASE("AgentGraph refuses a prompt before it encodes an output that is too long") {
  AgentWorld world;
  const CountingTokenizer tokenizer;
  NamedPrompt prompt = Spec("r", {Ids{1}, Later("v", OnFailure::kPartial), Ids{1}});
  prompt.tokenizer = &tokenizer;
  prompt.most_tokens = 1000;
  std::get<Reference>(prompt.segments[1]).timeout = absl::Seconds(1);
  const ValueTicket value = *world.Begin("v");
  // PairTokens has a token "abab".
  const std::string text(100000, 'a');
  SECTION("of an ended value") {
    REQUIRE(world.Append(value, text).ok());
    world.End(value);
    CHECK(Message(world.Submit(prompt)) ==
          "prompt: with the outputs it refers to it has at least 25001 tokens, limit 1000");
    CHECK(tokenizer.encoded == 0);
  }
  SECTION("of a live value") {
    REQUIRE(world.Append(value, text).ok());
    CHECK(world.Submit(prompt).code() == Code::kInvalidArgument);
    CHECK(tokenizer.encoded == 0);
  }
  SECTION("as it grows") {
    REQUIRE(world.Submit(prompt).ok());
    for (int i = 0; i < 1000; ++i) REQUIRE(world.Append(value, text.substr(0, 100)).ok());
    CHECK(world.reported["r"].failure.code() == Code::kInvalidArgument);
    // An attempt at a word that later text may change fails, and is repeated as the word grows.
    CHECK(tokenizer.encoded < 10 * 4 * 1000);
  }
  SECTION("at a reference's timeout") {
    prompt.segments.insert(prompt.segments.begin(), Later("never", OnFailure::kPartial));
    REQUIRE(world.Submit(prompt).ok());
    REQUIRE(world.Append(value, text).ok());
    CHECK(world.reported["r"].failure.ok());
    world.Advance(absl::Seconds(1));
    CHECK(world.reported["r"].failure.code() == Code::kInvalidArgument);
    CHECK(tokenizer.encoded == 0);
  }
}

}  // namespace
}  // namespace baton
