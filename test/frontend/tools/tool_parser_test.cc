#include "frontend/tools/tool_parser.h"

#include <random>

#include "base/strings.h"
#include "catch.h"
#include "seeds.h"

namespace baton {
namespace {

const std::vector<std::string> kNames = {"f", "g"};

// Parses the answer in these pieces.
ParsedAnswer Parse(ToolFormat format, const std::vector<std::string>& pieces) {
  const auto parser = MakeToolParser(format, kNames);
  ParsedAnswer all;
  const auto add = [&](ParsedAnswer more) {
    all.content += more.content;
    all.calls.insert(all.calls.end(), more.calls.begin(), more.calls.end());
  };
  for (const std::string& piece : pieces) add(parser->Push(piece));
  add(parser->Finish());
  return all;
}

// Writes an answer as "content|name(arguments)|...".
std::string Show(const ParsedAnswer& answer) {
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
      // Text that is not a call is content.
      {"<tool_call>{\"name\": \"f\", \"argum", "<tool_call>{\"name\": \"f\", \"argum"},
      {"<tool_call>nonsense</tool_call>", "<tool_call>nonsense</tool_call>"},
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

TEST_CASE("ToolParser finds the same calls for every split") {
  ForEachSeed(200, [](uint64_t seed) {
    std::mt19937 random(seed);
    const bool hermes = random() % 2 == 0;
    const ToolFormat format = hermes ? ToolFormat::kHermes : ToolFormat::kLlama;
    const std::vector<ToolCase>& cases = hermes ? HermesCases() : LlamaCases();
    std::string answer;
    for (uint32_t i = random() % 4 + 1; i > 0; --i) {
      answer += cases[random() % cases.size()].answer;
      if (random() % 4 == 0) answer.resize(random() % (answer.size() + 1));
    }
    std::vector<std::string> pieces;
    for (size_t at = 0; at < answer.size(); at += pieces.back().size())
      pieces.push_back(answer.substr(at, random() % 9));
    INFO(answer);
    CHECK(Show(Parse(format, pieces)) == Show(Parse(format, {answer})));
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

TEST_CASE("Parsing time is linear in the answer") {
  for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kLlama}) {
    const auto parser = MakeToolParser(format, kNames);
    const std::string begin =
        format == ToolFormat::kHermes ? "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":\"" : "{\"x\":\"";
    size_t shown = parser->Push(begin).content.size();
    // Quadratic time would be hours.
    for (int i = 0; i < 1'000'000; ++i) shown += parser->Push("<").content.size();
    CHECK(shown == 0);
    CHECK(parser->Finish().content.size() == begin.size() + 1'000'000);
  }
}

}  // namespace
}  // namespace baton
