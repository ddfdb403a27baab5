#include <string>
#include <vector>

#include "catch.h"
#include "text/pretokenizer.h"

namespace baton {
namespace {

using Strings = std::vector<std::string>;

constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Strings Split(const Strings& patterns, std::string_view text) {
  const auto pre_tokenizer = PreTokenizer::Create(patterns);
  INFO(pre_tokenizer.status());
  REQUIRE(pre_tokenizer.ok());
  Strings pieces;
  pre_tokenizer->Split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TEST_CASE("PreTokenizer keeps text whole without patterns and gives none for no text") {
  CHECK(Split({}, "a b") == Strings{"a b"});
  CHECK(Split({kGpt2}, "").empty());
}

TEST_CASE("PreTokenizer makes a piece of the text between matches") {
  CHECK(Split({"[bc]+"}, "abcab") == Strings{"a", "bc", "a", "b"});
}

TEST_CASE("PreTokenizer applies each pattern to the pieces of the previous one alone") {
  CHECK(Split({"\\p{N}", "a+(?!b)"}, "aa1aab") == Strings{"aa", "1", "a", "ab"});
  CHECK(Split({"b", "a+(?!b)"}, "aab") == Strings{"aa", "b"});
}

TEST_CASE("PreTokenizer keeps the last of several spaces with the word") {
  CHECK(Split({kGpt2}, "a   b  ") == Strings{"a", "  ", " b", "  "});
}

TEST_CASE("PreTokenizer ignores case by Unicode's rules when the pattern asks for it") {
  CHECK(Split({"(?i:'s)|\\p{L}+"}, "a'Sb'\u017Fc") == Strings{"a", "'S", "b", "'\u017F", "c"});
}

// The result must not depend on the Unicode version of PCRE2.
TEST_CASE("PreTokenizer uses the letters and digits of Unicode 16") {
  CHECK(Split({kGpt2}, "x\U0002EBF0\u1C89y") == Strings{"x\U0002EBF0\u1C89y"});
  CHECK(Split({"[^\\p{L}]+"}, "!\U0002EBF0!") == Strings{"!", "\U0002EBF0", "!"});
  CHECK(Split({kGpt2}, "1\U0001E4F0\U00011F50") == Strings{"1\U0001E4F0\U00011F50"});
  CHECK(Split({kGpt2}, "!\U0001E4F0") == Strings{"!", "\U0001E4F0"});
}

TEST_CASE("PreTokenizer counts U+0085 as a space and U+180E as none") {
  CHECK(Split({kGpt2}, "!\u180E!") == Strings{"!\u180E!"});
  CHECK(Split({kGpt2}, "!\u0085!") == Strings{"!", "\u0085", "!"});
  CHECK(Split({"\\S+"}, "!\u180E!\u0085") == Strings{"!\u180E!", "\u0085"});
}

}  // namespace
}  // namespace baton
