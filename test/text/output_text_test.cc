// The text of outputs whose tokens cut characters, with stop strings that have names of special
// tokens.
#include "text/output_text.h"

#include <algorithm>
#include <random>

#include "catch.h"
#include "seeds.h"
#include "text/tokenizer.h"
#include "tokenizer_fixture.h"

namespace baton {
namespace {

using Strings = std::vector<std::string>;

constexpr TokenId kEnd = 300, kStart = 301;

const Tokenizer& NamingTokenizer() {
  static const auto tokenizer = [] {
    nlohmann::json json = TinyTokenizer({{"a", "b"}, {"b", "\xC3"}});
    json["added_tokens"] = {AddedTokenJson(kEnd, "<e>", true), AddedTokenJson(kStart, "<a>", true)};
    return LoadTokenizer(json);
  }();
  return *tokenizer;
}

// A character of the shown text, or a name.
struct Unit {
  std::string text;
  bool is_name = false;
  int64_t tokens = 0;  // tokens of the output when the unit is complete
};

// The units of a whole output.
std::vector<Unit> UnitsOf(std::span<const TokenId> ids) {
  Detokenizer detokenizer(NamingTokenizer());
  std::vector<Unit> units;
  int64_t tokens = 0;
  const auto show = [&](const std::string& text) {
    for (const char byte : text) units.push_back({std::string(1, byte), false, tokens});
  };
  for (const TokenId id : ids) {
    ++tokens;
    show(detokenizer.Push(id));
    if (NamingTokenizer().IsSpecial(id)) units.push_back({std::string(NamingTokenizer().TokenBytes(id)), true, tokens});
  }
  show(detokenizer.Finish());
  return units;
}

// An output's end, found by trying all places.
struct Outcome {
  std::string text{};          // shown
  std::vector<TokenId> ids{};  // of names before the end
  bool stopped = false;
};

Outcome Before(const std::vector<Unit>& units, size_t end, bool stopped) {
  Outcome expected{.stopped = stopped};
  for (size_t i = 0; i < end; ++i) {
    if (!units[i].is_name) expected.text += units[i].text;
    if (units[i].is_name) expected.ids.push_back(units[i].text == "<e>" ? kEnd : kStart);
  }
  return expected;
}

Outcome Search(const std::vector<Unit>& units, const Strings& stops, int64_t min_tokens) {
  for (size_t end = 1; end <= units.size(); ++end) {
    if (units[end - 1].tokens <= min_tokens) continue;
    std::string shown, named;
    for (size_t begin = end; begin-- > 0;) {
      named.insert(0, units[begin].text);
      if (!units[begin].is_name) shown.insert(0, units[begin].text);
    }
    // The first place at which a stop string begins that is complete at `end`.
    for (size_t begin = 0; begin < end; ++begin) {
      const bool in_shown = !units[end - 1].is_name && !units[begin].is_name && std::ranges::count(stops, shown) > 0;
      if (in_shown || std::ranges::count(stops, named) > 0) return Before(units, begin, true);
      named.erase(0, units[begin].text.size());
      if (!units[begin].is_name) shown.erase(0, units[begin].text.size());
    }
  }
  return Before(units, units.size(), false);
}

TEST_CASE("OutputText ends at a special token's name as it ends before its id") {
  OutputText text(NamingTokenizer(), Strings{"<e>"}, 0);
  CHECK(text.Push('a') == "a");
  CHECK(text.Push(kStart).empty());
  CHECK(text.names().size() == 1);
  CHECK(text.Push(0xC3).empty());
  // An incomplete character before a stop id is U+FFFD too.
  CHECK(text.Push(kEnd) == "\uFFFD");
  CHECK(text.stopped());
  CHECK(text.names().empty());
  CHECK(text.Finish().empty());
}

TEST_CASE("OutputText gives the text of the whole output for random stop strings") {
  constexpr TokenId kIds[] = {'a', 'b', '<', 'e', '>', 0xC3, 0xA9, 256, 257, kEnd, kStart};
  const Strings pieces = {"a", "b", "<", "e>", "é", "\uFFFD", "<e>", "<a>"};
  size_t stopped_by_name = 0;
  const Seeds seeds = ForEachSeed(2000, [&](uint64_t seed) {
    std::mt19937 rng(seed);
    std::vector<TokenId> ids;
    for (int i = 0; i < 24; ++i) ids.push_back(kIds[rng() % std::size(kIds)]);
    Strings stops;
    for (size_t i = rng() % 4; i > 0; --i) {
      std::string& stop = stops.emplace_back();
      for (size_t k = rng() % 4 + 1; k > 0; --k) stop += pieces[rng() % pieces.size()];
    }
    const auto min_tokens = static_cast<int64_t>(rng() % 2 == 0 ? 0 : rng() % 26);
    const Outcome expected = Search(UnitsOf(ids), stops, min_tokens);

    OutputText text(NamingTokenizer(), stops, min_tokens);
    std::string shown;
    std::vector<TokenId> names;
    const auto take = [&](const std::string& part) {
      shown += part;
      REQUIRE(expected.text.starts_with(shown));
      for (const OutputText::Name& name : text.names()) {
        names.push_back(name.id);
        REQUIRE(name.at <= std::ssize(shown));
      }
    };
    for (const TokenId id : ids) {
      take(text.Push(id));
      if (text.stopped()) stopped_by_name += NamingTokenizer().IsSpecial(id);
      if (text.stopped()) break;
    }
    take(text.Finish());
    CHECK(shown == expected.text);
    CHECK(names == expected.ids);
    CHECK(text.stopped() == expected.stopped);
  });
  if (seeds.all()) CHECK(stopped_by_name > 0);
}

}  // namespace
}  // namespace baton
