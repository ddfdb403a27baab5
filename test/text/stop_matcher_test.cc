#include "text/stop_matcher.h"

#include <algorithm>
#include <random>

#include "catch.h"
#include "seeds.h"

namespace baton {
namespace {

using Strings = std::vector<std::string>;

std::string RandomLetters(std::mt19937& rng, size_t length, char last) {
  std::uniform_int_distribution<int> letter('a', last);
  std::string text;
  while (text.size() < length) text += static_cast<char>(letter(rng));
  return text;
}

// Returns the expected output: the text before the stop string that completes first. If several
// complete at once, the longest counts.
std::string Expected(const std::string& text, const Strings& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST_CASE("StopMatcher passes all text at once when there are no stop strings") {
  StopMatcher matcher({});
  CHECK(matcher.Push("hello") == "hello");
  CHECK(matcher.Push("") == "");
  CHECK(matcher.Finish() == "");
  CHECK(!matcher.stopped());
}

TEST_CASE("StopMatcher holds back the start of a stop string until it is decided") {
  StopMatcher matcher(Strings{"\n\nUser:"});
  CHECK(matcher.Push("Hi.\n") == "Hi.");
  CHECK(matcher.Push("\nUs") == "");
  CHECK(matcher.Push("age") == "\n\nUsage");
  CHECK(matcher.Push("\n\n\nUser") == "\n");
  SECTION("when the held-back text is a stop string") {
    CHECK(matcher.Push(": more") == "");
    CHECK(matcher.stopped());
    CHECK(matcher.Push("later") == "");
    CHECK(matcher.Finish() == "");
  }
  SECTION("when the stream ends first") {
    CHECK(matcher.Finish() == "\n\nUser");
    CHECK(!matcher.stopped());
  }
}

TEST_CASE("StopMatcher cuts text at a stop string inside one piece") {
  StopMatcher matcher(Strings{"END"});
  CHECK(matcher.Push("one END two END") == "one ");
  CHECK(matcher.stopped());
}

TEST_CASE("StopMatcher stops at the first complete stop string, the longest of several") {
  CHECK(StopMatcher(Strings{"bcd", "abcdef"}).Push("xabcdef") == "xa");
  CHECK(StopMatcher(Strings{"bc", "abc"}).Push("xabc") == "x");
  CHECK(StopMatcher(Strings{"aab"}).Push("aaaab") == "aa");
}

TEST_CASE("StopMatcher finds stop strings with names of special tokens") {
  const auto text_before = [](const Strings& stops, const Strings& parts) {
    StopMatcher matcher(stops);
    std::string out;
    // A part in brackets is a name.
    for (const std::string& part : parts) out += part.starts_with('<') ? matcher.PushName(part) : matcher.Push(part);
    return out + (matcher.stopped() ? "|" : matcher.Finish());
  };
  CHECK(text_before({"<end>"}, {"a.", "<end>", "b"}) == "a.|");
  CHECK(text_before({".<end>"}, {"a.", "<end>", "b"}) == "a|");
  CHECK(text_before({".<end>b"}, {"a.", "<end>", "bc"}) == "a|");
  CHECK(text_before({"<end><end>b"}, {"a", "<end>", "<end>", "<end>", "b"}) == "a|");
  // The shown text is a view of its own.
  CHECK(text_before({"ab"}, {"a", "<end>", "b"}) == "|");
  CHECK(text_before({"ab", "<end>c"}, {"a", "<end>", "c"}) == "a|");
  // A name that the model writes as text is text.
  CHECK(text_before({"<end>"}, {"a", "x<e", "nd>"}) == "ax|");
  // A name counts as a whole only.
  CHECK(text_before({"end", "d>b", "b<e"}, {"a", "<end>", "b", "<end>"}) == "ab");
  CHECK(text_before({"<end>b", "nd>c"}, {"<end>", "c"}) == "c");
  CHECK(text_before({".<end>"}, {"a.", "<other>", "<end>", "b"}) == "a.b");
}

TEST_CASE("StopMatcher holds back names with the text") {
  StopMatcher matcher(Strings{".<end>b"});
  CHECK(matcher.Push("a.") == "a");
  CHECK(matcher.PushName("<end>").empty());
  CHECK(matcher.held_names() == 1);
  SECTION("until a stop string is impossible") {
    CHECK(matcher.Push("c") == ".c");
    CHECK(matcher.held_names() == 0);
  }
  SECTION("until the stop string is complete, which drops them") {
    CHECK(matcher.Push("b").empty());
    CHECK(matcher.stopped());
    CHECK(matcher.held_names() == 1);
  }
  SECTION("until the stream ends") {
    CHECK(matcher.Finish() == ".");
    CHECK(matcher.held_names() == 0);
  }
}

TEST_CASE("StopMatcher gives the same result for any split of the text") {
  ForEachSeed(2000, [](uint64_t seed) {
    std::mt19937 rng(seed);
    std::uniform_int_distribution<size_t> small(1, 6);
    Strings stops;
    const size_t count = small(rng);
    while (stops.size() < count) stops.push_back(RandomLetters(rng, small(rng) + seed % 3, 'b' + seed % 2));
    const std::string text = RandomLetters(rng, 40, 'b' + seed % 2);
    StopMatcher matcher(stops);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t n = small(rng);
      out += matcher.Push(std::string_view(text).substr(at, n));
      at += n;
      REQUIRE(text.starts_with(out));
    }
    if (!matcher.stopped()) out += matcher.Finish();
    CHECK(out == Expected(text, stops));
    CHECK(matcher.stopped() == (out.size() < text.size()));
  });
}

TEST_CASE("StopMatcher holds back fewer bytes than the longest stop string has") {
  StopMatcher matcher(Strings{"aaaaaaaaab"});
  size_t shown = 0;
  for (size_t pushed = 1; pushed <= 1000; ++pushed) {
    shown += matcher.Push("a").size();
    REQUIRE(pushed - shown <= 9);
  }
}

TEST_CASE("StopMatcher takes linear time with 64 nearly matching strings of 1 KiB") {
  Strings stops;
  for (int i = 0; i < 64; ++i) stops.push_back(std::string(1023 - i, 'a') + "b");
  StopMatcher matcher(stops);
  size_t shown = 0;
  // The loop takes minutes if the matcher is quadratic.
  for (int i = 0; i < 1000; ++i) shown += matcher.Push(std::string(1024, 'a')).size();
  CHECK(shown >= 1000 * 1024 - 1024);
  CHECK(!matcher.stopped());
}

}  // namespace
}  // namespace baton
