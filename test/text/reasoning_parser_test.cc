#include "text/reasoning_parser.h"

#include "base/strings.h"
#include "catch.h"

namespace baton {
namespace {

struct Case {
  Thinking thinking;
  std::string written, reasoning, content;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {Thinking::kMay, "", "", ""},
      {Thinking::kMay, "hello\n", "", "hello\n"},
      {Thinking::kMay, "<think>\nhm\n</think>\n\nhello ", "\nhm\n", "\n\nhello "},
      {Thinking::kMay, " \n<think></think>hello", "", "hello"},
      {Thinking::kMay, "<think>a < b </th </think>c</think><think>d", "a < b </th ", "c</think><think>d"},
      {Thinking::kMay, "<think>never done </thin", "never done </thin", ""},
      {Thinking::kMay, "\n<thin", "", "\n<thin"},
      {Thinking::kMay, "x <think>a</think>", "", "x <think>a</think>"},
      {Thinking::kBegun, "hm</think>hello", "hm", "hello"},
      {Thinking::kBegun, "hm", "hm", ""},
      {Thinking::kBegun, "</think>", "", ""},
  };
  return cases;
}

void CheckPieces(const Case& test, const std::vector<std::string>& pieces) {
  ReasoningParser parser(test.thinking);
  ThinkingAnswer all;
  const auto add = [&all](const ThinkingAnswer& more) {
    // The answer begins after the reasoning has ended.
    CHECK((more.reasoning.empty() || all.content.empty()));
    all.reasoning += more.reasoning;
    all.content += more.content;
  };
  for (const std::string& piece : pieces) add(parser.Push(piece));
  add(parser.Finish());
  CAPTURE(test.written);
  CHECK(all.reasoning == test.reasoning);
  CHECK(all.content == test.content);
}

TEST_CASE("ReasoningParser separates reasoning from the answer for every split") {
  for (const Case& test : Cases()) {
    CheckPieces(test, {test.written});
    for (size_t cut = 0; cut <= test.written.size(); ++cut) {
      CheckPieces(test, {test.written.substr(0, cut), test.written.substr(cut)});
    }
    std::vector<std::string> bytes;
    for (const char c : test.written) bytes.emplace_back(1, c);
    CheckPieces(test, bytes);
  }
}

TEST_CASE("ReasoningParser holds back no text that cannot be a tag") {
  ReasoningParser parser(Thinking::kMay);
  CHECK(parser.Push("<thi").content.empty());
  CHECK(parser.Push("s").content == "<this");
  CHECK(parser.Push("<think>").content == "<think>");
  ReasoningParser begun(Thinking::kBegun);
  CHECK(begun.Push("a</th").reasoning == "a");
  CHECK(begun.Push("e").reasoning == "</the");
}

}  // namespace
}  // namespace baton
