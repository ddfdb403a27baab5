#include "frontend/tools/tool_parser.h"

#include <random>

#include "base/strings.h"
#include "catch.h"
#include "frontend/tools/random_calls.h"
#include "seeds.h"

namespace baton {
namespace {

const std::vector<std::string> kNames = {"f", "g"};

struct JoinedAnswer {
  std::string content;
  std::vector<ToolCall> calls;
};

// Joins the parts of an answer as clients do, and checks their order.
class Joiner {
 public:
  void Add(const ParsedAnswer& more) {
    answer_.content += more.content;
    for (const CallPart& part : more.calls) {
      CHECK(part.name.empty() == in_call_);
      if (!part.name.empty()) answer_.calls.push_back({.name = part.name, .arguments = ""});
      REQUIRE_FALSE(answer_.calls.empty());
      answer_.calls.back().arguments += part.arguments;
      in_call_ = !part.ends;
    }
  }
  JoinedAnswer Take() {
    CHECK_FALSE(in_call_);
    return std::move(answer_);
  }

 private:
  JoinedAnswer answer_;
  bool in_call_ = false;
};

// Parses the answer in these pieces.
JoinedAnswer Parse(ToolFormat format, const std::vector<std::string>& pieces) {
  const auto parser = MakeToolParser(format, kNames);
  Joiner joiner;
  for (const std::string& piece : pieces) joiner.Add(parser->Push(piece));
  joiner.Add(parser->Finish());
  return joiner.Take();
}

// Writes an answer as "content|name(arguments)|...".
std::string Show(const JoinedAnswer& answer) {
  std::string out = answer.content;
  for (const ToolCall& call : answer.calls) out += StrCat("|", call.name, "(", call.arguments, ")");
  return out;
}

struct ToolCase {
  std::string answer, expected;
};

const std::vector<ToolCase>& HermesCases() {
  static const std::vector<ToolCase> cases = {
      {"", ""},
      {"hello\n", "hello\n"},
      {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>", "|f({\"x\": 1})"},
      {"Let me see.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n", "Let me see.|f({})"},
      {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[1,{\"b\":\"}\\\"\"}]}}</tool_call>\n"
       "<tool_call>{\"arguments\":{\"y\" : 18446744073709551616.5 },\"name\":\"unknown\"}</tool_call>",
       "|f({\"a\":[1,{\"b\":\"}\\\"\"}]})|unknown({\"y\" : 18446744073709551616.5 })"},
      {"<tool_call>{\"name\": \"f\"}</tool_call> and more ", " and more |f({})"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 2}\"}</tool_call>", "|f({\"x\": 2})"},
      // No end tag: the model stopped at it.
      {"<tool_call>{\"name\": \"f\", \"arguments\": null}", "|f({})"},
      {"<tool_call>{\"name\": \"f\"}</tool_", "|f({})"},
      // A call that has begun is a call, whatever follows.
      {"<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": [1", "|f({\"x\": [1)"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1,, y}}</tool_call>", "|f({\"x\": 1,, y})"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"</tool_call> a", " a|f({\"x\": \")"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {}</tool_call>", "|f({})"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {}} a </tool_call>", " a </tool_call>|f({})"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {}, \"other\": {\"}\": 1}}</tool_call>", "|f({})"},
      // Objects that are held back until they are whole.
      {"<tool_call>{\"arguments\": {\"x\": {}}, \"name\": \"f\", \"arguments\": {}}</tool_call>",
       "<tool_call>{\"arguments\": {\"x\": {}}, \"name\": \"f\", \"arguments\": {}}</tool_call>"},
      {"<tool_call>{\"name\": \"f\", \"x\\\"arguments\": {}}</tool_call>",
       "<tool_call>{\"name\": \"f\", \"x\\\"arguments\": {}}</tool_call>"},
      {"<tool_call>{\"id\": {\"arguments\": {}}, \"name\": \"f\", \"parameters\": {\"y\": 2}}", "|f({\"y\": 2})"},
      // Text that is not a call is content.
      {"<tool_call>{\"name\": \"f\", \"argum", "<tool_call>{\"name\": \"f\", \"argum"},
      {"a\n<tool_call>\nnonsense</tool_call>", "a\n<tool_call>\nnonsense</tool_call>"},
      {"<tool_call>no<tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>no|f({})"},
      {"<tool_call>{\"name\": 3}</tool_call>", "<tool_call>{\"name\": 3}</tool_call>"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>!",
       "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>!"},
      {"<tool_call>{\"name\": \"f\", \"other\": 1}</tool_call>",
       "<tool_call>{\"name\": \"f\", \"other\": 1}</tool_call>"},
      {"a <tool_ca", "a <tool_ca"},
      {"a <tool_ca<tool_call>{\"name\":\"f\"}</tool_call>", "a <tool_ca|f({})"},
      {"x</tool_call>", "x</tool_call>"},
      {"<<tool_call>x<tool_call>", "<<tool_call>x<tool_call>"},
  };
  return cases;
}

const std::vector<ToolCase>& LlamaCases() {
  static const std::vector<ToolCase> cases = {
      {"", ""},
      {"  \n", "  \n"},
      {"hello {\"name\": \"f\", \"parameters\": {}}", "hello {\"name\": \"f\", \"parameters\": {}}"},
      {"{\"name\": \"f\", \"parameters\": {\"x\": \"}{\"}}", "|f({\"x\": \"}{\"})"},
      {" \n<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "|f({})"},
      {"{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"arguments\": {\"a\": 1}}\n",
       "|f({})|g({\"a\": 1})"},
      {"I call <|python_tag|>{\"name\": \"g\", \"parameters\": {}} now", "I call  now|g({})"},
      // Text that is not a call is content.
      {"{\"name\": \"Ann\", \"parameters\": {}}", "{\"name\": \"Ann\", \"parameters\": {}}"},
      {"{\"name\": \"f\", \"param", "{\"name\": \"f\", \"param"},
      {"{} {\"name\": \"f\"}", "{} {\"name\": \"f\"}"},
      {"{\"name\": \"Ann\", \"parameters\": {\"x", "{\"name\": \"Ann\", \"parameters\": {\"x"},
      {" <|python_tag|> {\"name\": \"f\", \"parameters\": {\"x", "|f({\"x)"},
      {"{\"name\": \"f\", \"parameters\": {\"x\": 1}; {\"name\": \"g\", \"parameters\": {}}}", "}|f({\"x\": 1})|g({})"},
      {"<|python_tag|>print(1)", "<|python_tag|>print(1)"},
      {"<|python_tag|><|python", "<|python_tag|><|python"},
      {"<|pyth", "<|pyth"},
      {"{\"name\": \"f\"}; no", "; no|f({})"},
      {"a <|python_tag|>", "a <|python_tag|>"},
  };
  return cases;
}

TEST_CASE("ToolParser finds calls and returns other text as content for every split") {
  const auto check = [](ToolFormat format, const std::vector<ToolCase>& cases) {
    for (const ToolCase& c : cases) {
      INFO(c.answer);
      CHECK(Show(Parse(format, {c.answer})) == c.expected);
      std::vector<std::string> bytes;
      for (const char byte : c.answer) bytes.emplace_back(1, byte);
      CHECK(Show(Parse(format, bytes)) == c.expected);
    }
  };
  check(ToolFormat::kHermes, HermesCases());
  check(ToolFormat::kLlama, LlamaCases());
}

std::vector<std::string> Cut(const std::string& answer, std::mt19937& random) {
  std::vector<std::string> pieces;
  const uint32_t longest = random() % 2 == 0 ? 9 : 40;
  for (size_t at = 0; at < answer.size(); at += pieces.back().size())
    pieces.push_back(answer.substr(at, random() % longest));
  return pieces;
}

TEST_CASE("ToolParser finds the calls of random answers as they were written") {
  ForEachSeed(300, [](uint64_t seed) {
    std::mt19937 random(seed);
    const bool hermes = random() % 2 == 0;
    std::string answer;
    JoinedAnswer expected;
    for (uint32_t i = random() % 4; i > 0; --i) {
      const ToolCall call{.name = Pick(kNames, random), .arguments = RandomArguments(random)};
      const std::string text = CallText(call, random);
      answer += hermes ? StrCat("<tool_call>\n", text, "\n</tool_call>\n") : StrCat(text, ";\n");
      expected.calls.push_back(call);
    }
    INFO(answer);
    const ToolFormat format = hermes ? ToolFormat::kHermes : ToolFormat::kLlama;
    CHECK(Show(Parse(format, Cut(answer, random))) == Show(expected));
  });
}

TEST_CASE("ToolParser finds the same parts of broken answers for every split") {
  ForEachSeed(600, [](uint64_t seed) {
    std::mt19937 random(seed);
    const bool hermes = random() % 2 == 0;
    const ToolFormat format = hermes ? ToolFormat::kHermes : ToolFormat::kLlama;
    const std::vector<ToolCase>& cases = hermes ? HermesCases() : LlamaCases();
    std::string answer;
    for (uint32_t i = random() % 4 + 1; i > 0; --i) {
      if (random() % 2 == 0) {
        answer += cases[random() % cases.size()].answer;
      } else {
        const std::string name = random() % 4 == 0 ? "unknown" : Pick(kNames, random);
        const std::string call = CallText({.name = name, .arguments = RandomArguments(random)}, random);
        answer += hermes ? StrCat(" <tool_call>", call, "</tool_call>") : StrCat("<|python_tag|>", call);
      }
      if (random() % 2 == 0) Break(answer, random);
    }
    INFO(answer);
    CHECK(Show(Parse(format, Cut(answer, random))) == Show(Parse(format, {answer})));
  });
}

TEST_CASE("ToolParser holds back no text that cannot be a call") {
  const auto hermes = MakeToolParser(ToolFormat::kHermes, kNames);
  CHECK(hermes->Push("a <b").content == "a <b");
  CHECK(hermes->Push("c <tool").content == "c");
  CHECK(hermes->Push("s").content == " <tools");
  const auto llama = MakeToolParser(ToolFormat::kLlama, kNames);
  CHECK(llama->Push(" Hi").content == " Hi");
  CHECK(llama->Push(" {").content == " {");
  const auto json = MakeToolParser(ToolFormat::kLlama, kNames);
  CHECK(json->Push("{\"answer\": 42").content.empty());
  CHECK(json->Push("} th").content == "{\"answer\": 42} th");
}

TEST_CASE("ToolParser passes arguments on as they arrive") {
  for (const auto& [format, begin] : {std::pair(ToolFormat::kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": "),
                                      std::pair(ToolFormat::kLlama, "{\"name\": \"f\", \"parameters\" :\n")}) {
    const auto parser = MakeToolParser(format, kNames);
    CHECK(parser->Push(begin).calls.empty());
    const auto first = parser->Push("{");
    REQUIRE(first.calls.size() == 1);
    CHECK(first.calls[0].name == "f");
    CHECK(first.calls[0].arguments == "{");
    for (const char* text : {"\"x\": {\"", "}\\\"", "é"}) {
      const auto more = parser->Push(text);
      REQUIRE(more.calls.size() == 1);
      CHECK(more.calls[0].name.empty());
      CHECK(more.calls[0].arguments == text);
      CHECK_FALSE(more.calls[0].ends);
    }
    const auto last = parser->Push("\"}} ");
    REQUIRE(last.calls.size() == 1);
    CHECK(last.calls[0].arguments == "\"}}");
    CHECK(last.calls[0].ends);
  }
}

TEST_CASE("ToolParser holds back arguments until their call is certain") {
  for (const char* begin : {"{\"name\": \"unknown\", \"arguments\": ", "{\"arguments\": ", "{\"name\": \"f\", \"x\": ",
                            "{\"name\": \"f\", \"arguments\": \"", "{\"name\": 1, \"arguments\": ",
                            "{\"name\": \"f\", \"arguments\": [", "{\"type\": \"\", \"name\": \"\", \"arguments\": "}) {
    INFO(begin);
    const auto parser = MakeToolParser(ToolFormat::kHermes, kNames);
    const ParsedAnswer held = parser->Push(StrCat("<tool_call>", begin, "{\"y\": 1"));
    CHECK(held.calls.empty());
    CHECK(held.content.empty());
    CHECK(parser->Finish().content == StrCat("<tool_call>", begin, "{\"y\": 1"));
  }
}

TEST_CASE("Parsing time is linear in the answer") {
  const std::pair<ToolFormat, std::string> kBegins[] = {
      {ToolFormat::kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":\""},
      {ToolFormat::kHermes, "<tool_call>{\"name\":\"unknown\",\"arguments\":{\"x\":\""},
      {ToolFormat::kLlama, "{\"x\":\""},
      {ToolFormat::kLlama, "{\"name\":\"f\",\"parameters\":{\"x\":\""}};
  for (const auto& [format, begin] : kBegins) {
    const auto parser = MakeToolParser(format, kNames);
    Joiner joiner;
    joiner.Add(parser->Push(begin));
    // Quadratic time would be hours.
    for (int i = 0; i < 1'000'000; ++i) joiner.Add(parser->Push("<"));
    joiner.Add(parser->Finish());
    const JoinedAnswer answer = joiner.Take();
    const std::string& all = answer.calls.empty() ? answer.content : answer.calls[0].arguments;
    CHECK(all.size() == (answer.calls.empty() ? begin.size() : 6) + 1'000'000);
  }
  // Each brace could begin a call.
  const auto parser = MakeToolParser(ToolFormat::kLlama, kNames);
  std::string keys = "{\"name\": \"unknown\"";
  for (int i = 0; i < 100'000; ++i) keys += ", \"arguments\": {}";
  CHECK(parser->Push(keys).content.empty());
  CHECK(parser->Finish().content == keys);
}

}  // namespace
}  // namespace baton
