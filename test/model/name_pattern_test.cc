#include "model/name_pattern.h"

#include <random>
#include <string>
#include <vector>

#include "catch.h"
#include "seeds.h"

namespace baton {
namespace {

TEST_CASE("NamePattern matches any characters in place of a star") {
  CHECK(NamePattern("claude-*").Matches("claude-"));
  CHECK(NamePattern("claude-*").Matches("claude-haiku-4-5"));
  CHECK_FALSE(NamePattern("claude-*").Matches("Claude-haiku"));
  CHECK_FALSE(NamePattern("claude-*").Matches("my-claude-"));
  CHECK(NamePattern("*").Matches(""));
  CHECK(NamePattern("*mini*").Matches("gpt-4o-mini"));
  CHECK(NamePattern("a*b*b").Matches("abbbb"));
  CHECK_FALSE(NamePattern("a*b*b").Matches("ab"));
  CHECK(NamePattern("gpt").Matches("gpt"));
  CHECK_FALSE(NamePattern("gpt").Matches("gpt-4"));
  CHECK(NamePattern("a***b").text() == "a*b");
  CHECK_FALSE(NamePattern("a.c").Matches("abc"));
}

// The names of up to eight letters. Patterns have two of the three letters.
std::vector<std::string> ShortNames() {
  std::vector<std::string> names = {""};
  for (size_t i = 0; names[i].size() < 8; ++i) {
    for (const char letter : {'a', 'b', 'c'}) names.push_back(names[i] + letter);
  }
  return names;
}

// Patterns of up to four characters cover or overlap each other if they do so on these names.
TEST_CASE("NamePattern covers and overlaps as its matches do") {
  const std::vector<std::string> names = ShortNames();
  ForEachSeed(10, [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&random] {
      std::string text;
      for (const uint64_t length = 1 + random() % 4; text.size() < length;) text += "ab*"[random() % 3];
      return NamePattern(text);
    };
    for (int i = 0; i < 50; ++i) {
      const NamePattern a = draw(), b = draw();
      CAPTURE(a.text(), b.text());
      bool covers = true, overlaps = false;
      for (const std::string& name : names) {
        const bool in_a = a.Matches(name), in_b = b.Matches(name);
        covers = covers && (in_a || !in_b);
        overlaps = overlaps || (in_a && in_b);
      }
      CHECK(a.Covers(b) == covers);
      CHECK(a.Overlaps(b) == overlaps);
      if (covers && a.text() != b.text()) CHECK(b < a);
    }
  });
}

TEST_CASE("NamePattern finds the overlap of patterns whose common names are long") {
  CHECK(NamePattern("aa*bb").Overlaps(NamePattern("a*cc*b")));
  CHECK(NamePattern("ab*").Overlaps(NamePattern("*ba")));
  CHECK_FALSE(NamePattern("ab*").Overlaps(NamePattern("aa*")));
  CHECK_FALSE(NamePattern("*ab").Overlaps(NamePattern("*bb")));
  CHECK(NamePattern("abc").Overlaps(NamePattern("a*c")));
  CHECK_FALSE(NamePattern("abc").Overlaps(NamePattern("a*d")));
}

}  // namespace
}  // namespace baton
