// Outputs of models that think, as prompts receive them.
#include <limits>
#include <random>

#include "seeds.h"
#include "text/detokenizer.h"
#include "world/agent_world.h"

namespace baton {
namespace {

constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max();

// The tags are no tokens, special tokens, or tokens with text. Merges make tokens that begin inside
// a tag and end behind it.
enum class Tags { kText, kSpecial, kTokens };

const Tokenizer& TagTokens(Tags tags) {
  static const auto make = [](Tags with) {
    nlohmann::json tokenizer = TinyTokenizer({{"a", "b"}, {">", "a"}, {">", "\n"}, {"k", ">"}, {" ", "a"}});
    if (with == Tags::kText) return LoadTokenizer(tokenizer);
    tokenizer["added_tokens"] = {AddedTokenJson(261, "<think>", with == Tags::kSpecial),
                                 AddedTokenJson(262, "</think>", with == Tags::kSpecial)};
    return LoadTokenizer(tokenizer);
  };
  static const std::unique_ptr<Tokenizer> tokenizers[] = {make(Tags::kText), make(Tags::kSpecial), make(Tags::kTokens)};
  return *tokenizers[static_cast<size_t>(tags)];
}

// Returns the answer that the OpenAI API shows.
std::string Content(Thinking thinking, const std::string& written) {
  if (thinking == Thinking::kNone) return written;
  ReasoningParser parser(thinking);
  const std::string content = parser.Push(written).content;
  return content + parser.Finish().content;
}

std::string WithoutTags(std::string_view text) {
  std::string rest;
  while (!text.empty()) {
    const std::string_view tag = text.starts_with(kThinkBegin) ? kThinkBegin : kThinkEnd;
    if (text.starts_with(tag)) {
      text.remove_prefix(tag.size());
    } else {
      rest += text[0];
      text.remove_prefix(1);
    }
  }
  return rest;
}

// Pushes the tokens of `written` in random updates, and checks after each that no token of the
// answer is taken back. The text is late, as if a stop string might begin. Returns the answer.
Ids Answer(Tags tags, Thinking thinking, const std::string& written, std::mt19937_64& random, const Tokenizer& reader) {
  const Tokenizer& writer = TagTokens(tags);
  const Ids ids = writer.Encode(written, Tokenizer::SpecialTokens::kParse);
  Output output(writer);
  output.BeginAfter({}, thinking);
  Detokenizer detokenizer(writer);
  std::string text;
  size_t shown = 0;
  Ids known;
  for (size_t at = 0; at < ids.size();) {
    const size_t count = std::min<size_t>(1 + random() % 4, ids.size() - at);
    for (size_t i = 0; i < count; ++i) text += detokenizer.Push(ids[at + i]);
    const size_t end = shown + random() % (text.size() - shown + 1);
    output.Push(std::span(ids).subspan(at, count), std::string_view(text).substr(shown, end - shown));
    shown = end;
    at += count;
    const auto now = output.TokensFor(reader, Output::Part::kAnswer, kAnyNumber).ids;
    REQUIRE(now.size() >= known.size());
    REQUIRE(std::ranges::equal(known, now.first(known.size())));
    known.assign(now.begin(), now.end());
  }
  text += detokenizer.Finish();
  output.Push({}, std::string_view(text).substr(shown));
  output.Close();
  const auto all = output.TokensFor(reader, Output::Part::kAnswer, kAnyNumber).ids;
  REQUIRE(std::ranges::equal(known, all.first(known.size())));
  return {all.begin(), all.end()};
}

TEST_CASE("Output of a model that thinks has the answer's tokens alone") {
  const std::vector<std::string> pieces = {"<think>", "</think>", "<", "think>", "</", "ab", "\n", " a", ">", "é", "k"};
  ForEachSeed(2000, [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto tags = static_cast<Tags>(random() % 3);
    const auto thinking = static_cast<Thinking>(random() % 3);
    std::string written = thinking == Thinking::kMay && random() % 2 == 0 ? "\n<think>" : "";
    for (uint64_t i = random() % 12; i > 0; --i) written += pieces[random() % pieces.size()];
    INFO("tags " << static_cast<int>(tags) << ", thinking " << static_cast<int>(thinking) << ": " << written);
    std::string content = Content(thinking, written);
    // Special tokens have no text, and a model must not write them into a prompt.
    if (tags == Tags::kSpecial) content = WithoutTags(content);
    CHECK(Bytes(TagTokens(tags), Answer(tags, thinking, written, random, TagTokens(tags))) == content);
    CHECK(Answer(tags, thinking, written, random, ByteTokens()) == TextIds(ByteTokens(), content));
  });
}

TEST_CASE("Output keeps the answer's tokens as they were generated") {
  std::mt19937_64 random(1);
  // "ab" is one token, which the model wrote as two.
  const Tokenizer& writer = TagTokens(Tags::kTokens);
  Output output(writer);
  output.BeginAfter({}, Thinking::kBegun);
  const Ids ids = {'h', 262, 'a', 'b'};
  output.Push(ids, "h</think>ab");
  const auto answer = output.TokensFor(writer, Output::Part::kAnswer, kAnyNumber).ids;
  CHECK(Ids(answer.begin(), answer.end()) == Ids{'a', 'b'});
  const auto whole = output.TokensFor(writer, Output::Part::kWhole, kAnyNumber).ids;
  CHECK(Ids(whole.begin(), whole.end()) == ids);
}

TEST_CASE("Output that ends inside its thoughts has no answer") {
  Output output(ByteTokens());
  output.BeginAfter({}, Thinking::kMay);
  output.Push(TextIds(ByteTokens(), "<think>hm"), "<think>hm");
  output.Close();
  CHECK(output.TokensFor(ByteTokens(), Output::Part::kAnswer, kAnyNumber).ids.empty());
  CHECK(output.TokensFor(ByteTokens(), Output::Part::kWhole, kAnyNumber).ids.size() == 9);
}

TEST_CASE("AgentGraph reports a prompt from </think> on, and thoughts if they are wanted") {
  AgentWorld world;
  const bool with_reasoning = GENERATE(false, true);
  Reference reference{"a"};
  reference.with_reasoning = with_reasoning;
  REQUIRE(world.Submit(Spec("a", {Bytes("x")})).ok());
  REQUIRE(world.Submit(Spec("b", {Bytes("0123456789abcde"), reference})).ok());
  world.graph.BeginAfter(world.Node("a"), {}, Thinking::kBegun);
  world.Made("a", "some thoughts");
  CHECK(world.Text("b").empty() == !with_reasoning);
  world.Made("a", "</think>an answer of many words");
  CHECK(world.Text("b") ==
        (with_reasoning ? "0123456789abcdesome thoughts</think>an answer of " : "0123456789abcdean answer of many "));
  world.End("a");
  CHECK(world.Text("b") == (with_reasoning ? "0123456789abcdesome thoughts</think>an answer of many words"
                                           : "0123456789abcdean answer of many words"));
  CHECK(world.reported["b"].restarts == 0);
}

}  // namespace
}  // namespace baton
