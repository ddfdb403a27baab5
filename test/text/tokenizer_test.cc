#include "text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <random>
#include <thread>

#include "catch.h"
#include "seeds.h"
#include "tokenizer_fixture.h"

namespace baton {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;
using SpecialTokens = Tokenizer::SpecialTokens;

json WithAdded(json tokenizer, std::initializer_list<json> added) {
  tokenizer["added_tokens"] = added;
  return tokenizer;
}

json WithPattern(json tokenizer, const std::string& pattern) {
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  json byte_level = tokenizer["pre_tokenizer"];
  byte_level["use_regex"] = false;
  tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
  return tokenizer;
}

// Merges as the definition states: while any rule applies, it applies the first rule at its
// leftmost position.
Ids MergeByDefinition(std::string_view word, const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<std::string> parts;
  for (const char byte : word) parts.emplace_back(1, byte);
  for (bool merged = true; merged;) {
    merged = false;
    for (size_t rule = 0; rule < merges.size() && !merged; ++rule) {
      for (size_t i = 0; i + 1 < parts.size() && !merged; ++i) {
        if (parts[i] != merges[rule].first || parts[i + 1] != merges[rule].second) continue;
        parts[i] += parts[i + 1];
        parts.erase(parts.begin() + i + 1);
        merged = true;
      }
    }
  }
  Ids ids;
  for (const std::string& part : parts) {
    const auto made = std::find_if(merges.begin(), merges.end(), [&](auto& m) { return m.first + m.second == part; });
    ids.push_back(part.size() == 1 ? static_cast<unsigned char>(part[0])
                                   : static_cast<TokenId>(256 + (made - merges.begin())));
  }
  return ids;
}

TEST_CASE("Tokenizer applies the first merge rule first at any position") {
  const auto tokenizer = LoadTokenizer(TinyTokenizer({{"b", "c"}, {"a", "b"}, {"a", "bc"}}));
  CHECK(Encode(*tokenizer, "ab") == Ids{257});
  CHECK(Encode(*tokenizer, "abc") == Ids{258});
  CHECK(Encode(*tokenizer, "abab") == Ids{257, 257});
}

TEST_CASE("Tokenizer merges short and long words as defined") {
  const auto tokenizer = LoadTokenizer(WithPattern(
      TinyTokenizer({{"a", "a"}, {"a", "b"}, {"aa", "aa"}, {"b", "aa"}, {"ab", "ab"}, {"aaaa", "b"}, {"b", "b"}}),
      "[ab]+"));
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"a", "a"}, {"a", "b"}, {"aa", "aa"}, {"b", "aa"}, {"ab", "ab"}, {"aaaa", "b"}, {"b", "b"}};
  ForEachSeed(200, [&](uint64_t seed) {
    std::mt19937 rng(seed);
    std::string word(1 + rng() % 120, 'a');
    for (char& letter : word) letter = rng() % 3 == 0 ? 'b' : 'a';
    CHECK(Encode(*tokenizer, word) == MergeByDefinition(word, merges));
  });
}

TEST_CASE("Tokenizer uses a token without merges only when the model ignores merges") {
  json tokenizer = WithPattern(TinyTokenizer({{"a", "b"}}), "[a-z]+");
  tokenizer["model"]["vocab"]["abc"] = 257;
  CHECK(Encode(*LoadTokenizer(tokenizer), "abc") == Ids{256, 'c'});
  CHECK(Encode(*LoadTokenizer(tokenizer), "abc") == Ids{256, 'c'});
  tokenizer["model"]["ignore_merges"] = true;
  CHECK(Encode(*LoadTokenizer(tokenizer), "abc") == Ids{257});
}

TEST_CASE("Tokenizer merges nothing across pre-tokens") {
  const auto tokenizer = LoadTokenizer(TinyTokenizer({{"a", " "}, {" ", "a"}, {"1", "a"}}));
  CHECK(Encode(*tokenizer, "a a1a") == Ids{'a', 257, '1', 'a'});
}

TEST_CASE("Tokenizer separates digits when the file asks for it") {
  json tokenizer = TinyTokenizer({{"1", "2"}, {" ", "1"}});
  json digits = {{"type", "Digits"}, {"individual_digits", true}};
  tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {digits, tokenizer["pre_tokenizer"]}}};
  CHECK(Encode(*LoadTokenizer(tokenizer), "x 12") == Ids{'x', ' ', '1', '2'});
  tokenizer["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = false;
  CHECK(Encode(*LoadTokenizer(tokenizer), "x 12") == Ids{'x', ' ', 256});
}

TEST_CASE("Tokenizer reads merges as one string or as two") {
  json tokenizer = TinyTokenizer({{"a", "b"}});
  tokenizer["model"]["merges"] = {"a b"};
  CHECK(Encode(*LoadTokenizer(tokenizer), "ab") == Ids{256});
}

TEST_CASE("Tokenizer takes the leftmost added token, the longest of several") {
  const auto tokenizer =
      LoadTokenizer(WithAdded(TinyTokenizer(), {AddedTokenJson(300, "<a>", true), AddedTokenJson(301, "<a><b>", true),
                                                AddedTokenJson(302, "><b>!", true)}));
  CHECK(Encode(*tokenizer, "<a>") == Ids{300});
  CHECK(Encode(*tokenizer, "<a><b>!") == Ids{301, '!'});
  CHECK(Encode(*tokenizer, "<<a>><b>!<a") == Ids{'<', 300, 302, '<', 'a'});
  CHECK(tokenizer->vocab_size() == 303);
  CHECK(tokenizer->TokenBytes(301) == "<a><b>");
  CHECK(tokenizer->TokenBytes(299).empty());
  CHECK(tokenizer->TokenBytes(-1).empty());
}

TEST_CASE("Tokenizer keeps special tokens as text on request, but not other added ones") {
  const auto tokenizer =
      LoadTokenizer(WithAdded(TinyTokenizer(), {AddedTokenJson(300, "<s>", true), AddedTokenJson(301, "<t>", false)}));
  CHECK(tokenizer->Encode("<s><t>", SpecialTokens::kParse) == Ids{300, 301});
  CHECK(tokenizer->Encode("<s><t>", SpecialTokens::kAsText) == Ids{'<', 's', '>', 301});
  CHECK(tokenizer->IsSpecial(300));
  CHECK(!tokenizer->IsSpecial(301));
}

TEST_CASE("Tokenizer makes no special token of text when it ignores merges") {
  json tokenizer = WithAdded(TinyTokenizer(), {AddedTokenJson(300, "end", true)});
  tokenizer["model"]["vocab"]["end"] = 300;
  tokenizer["model"]["ignore_merges"] = true;
  const auto loaded = LoadTokenizer(tokenizer);
  CHECK(loaded->Encode("end", SpecialTokens::kAsText) == Ids{'e', 'n', 'd'});
  CHECK(loaded->Encode("end", SpecialTokens::kParse) == Ids{300});
}

TEST_CASE("Tokenizer searches for an added token in normalised text when marked so") {
  json added = AddedTokenJson(300, "e\u0301!", false);
  json tokenizer = WithAdded(TinyTokenizer(), {added});
  tokenizer["normalizer"] = {{"type", "NFC"}};
  CHECK(Encode(*LoadTokenizer(tokenizer), "e\u0301!") == Ids{300});
  CHECK(Encode(*LoadTokenizer(tokenizer), "\u00e9!") == Ids{0xC3, 0xA9, '!'});
  tokenizer["added_tokens"][0]["normalized"] = true;
  CHECK(Encode(*LoadTokenizer(tokenizer), "e\u0301!") == Ids{300});
  CHECK(Encode(*LoadTokenizer(tokenizer), "\u00e9!") == Ids{300});
}

TEST_CASE("Tokenizer adds the tokens of tokenizer_config.json") {
  const TempDir directory;
  directory.Write("tokenizer.json", WithAdded(TinyTokenizer(), {AddedTokenJson(300, "<a>", true)}).dump());
  directory.Write("tokenizer_config.json",
                  R"({"added_tokens_decoder": {"300": {"content": "<a>", "special": false},
                                               "301": {"content": "<b>", "special": true}}})");
  const auto tokenizer = Tokenizer::Load(directory.path());
  REQUIRE(tokenizer.ok());
  CHECK(Encode(**tokenizer, "<a><b>") == Ids{300, 301});
  CHECK((*tokenizer)->IsSpecial(300));
  CHECK((*tokenizer)->IsSpecial(301));
}

TEST_CASE("Tokenizer takes the prompt's prefix from the post-processor's template") {
  json tokenizer = WithAdded(TinyTokenizer(), {AddedTokenJson(300, "<s>", true)});
  CHECK(LoadTokenizer(tokenizer)->prompt_prefix().empty());
  const json begin = {{"type", "TemplateProcessing"},
                      {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                      {"special_tokens", {{"<s>", {{"ids", {300}}}}}}};
  tokenizer["post_processor"] = {{"type", "Sequence"}, {"processors", {tokenizer["decoder"], begin}}};
  const auto loaded = LoadTokenizer(tokenizer);
  const auto prefix = loaded->prompt_prefix();
  CHECK(Ids(prefix.begin(), prefix.end()) == Ids{300});
  CHECK(Encode(*loaded, "a") == Ids{'a'});
}

TEST_CASE("Tokenizer drops bytes without a token or maps them to the unknown token") {
  json tokenizer = TinyTokenizer({{"a", "b"}});
  tokenizer["model"]["vocab"].erase(ByteStandIn(1));
  CHECK(Encode(*LoadTokenizer(tokenizer), "\x01\x01") == Ids{});
  tokenizer["model"]["unk_token"] = "?";
  CHECK(Encode(*LoadTokenizer(tokenizer), "\x01\x01") == Ids{'?', '?'});
}

TEST_CASE("The tokenizer digest covers the vocabulary but not its spelling") {
  const json tokenizer = WithAdded(TinyTokenizer({{"a", "b"}, {"c", "d"}}), {AddedTokenJson(300, "<s>", true)});
  const Digest digest = LoadTokenizer(tokenizer)->digest();
  const auto indented = TryLoad(tokenizer.dump(4));
  REQUIRE(indented.ok());
  CHECK((*indented)->digest() == digest);

  json other_form = tokenizer;
  other_form["model"]["merges"] = {"a b", "c d"};
  CHECK(LoadTokenizer(other_form)->digest() == digest);

  json changed = tokenizer;
  SECTION("when the order of merges differs") {
    std::swap(changed["model"]["merges"][0], changed["model"]["merges"][1]);
  }
  SECTION("when ids differ") { std::swap(changed["model"]["vocab"]["a"], changed["model"]["vocab"]["b"]); }
  SECTION("when a token is not special") { changed["added_tokens"][0]["special"] = false; }
  SECTION("when the normalizer differs") { changed["normalizer"] = {{"type", "NFC"}}; }
  SECTION("when the pre-tokenizer differs") { changed = WithPattern(changed, "a"); }
  SECTION("when ignore_merges differs") { changed["model"]["ignore_merges"] = true; }
  SECTION("when a token is added") { changed["added_tokens"].push_back(AddedTokenJson(301, "<t>", false)); }
  CHECK(LoadTokenizer(changed)->digest() != digest);
}

TEST_CASE("Tokenizer gives the same ids to threads that share it") {
  const auto tokenizer = LoadTokenizer(TinyTokenizer({{"a", "b"}, {"ab", "ab"}, {" ", "a"}}));
  std::string text;
  for (int i = 0; i < 2000; ++i) text += i % 3 ? "abab a" : " ab ba";
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) threads.emplace_back([&] { result = Encode(*tokenizer, text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) CHECK(result == Encode(*tokenizer, text));
}

TEST_CASE("Tokenizer::max_bytes_per_token bounds the bytes of a text per token") {
  json file = TinyTokenizer({{"a", "b"}, {"ab", "ab"}});
  CHECK(LoadTokenizer(file)->max_bytes_per_token() == 4);
  SECTION("when the file has added tokens") {
    file = WithAdded(file, {AddedTokenJson(300, "<|special|>", true)});
    CHECK(LoadTokenizer(file)->max_bytes_per_token() == 11);
  }
  SECTION("when text shrinks before it is tokenised") {
    file["normalizer"] = {{"type", "NFC"}};
    std::string text;
    for (int i = 0; i < 100; ++i) text += "\u1fbe\u0308\u0341";
    const auto tokenizer = LoadTokenizer(file);
    CHECK(static_cast<int64_t>(Encode(*tokenizer, text).size()) >=
          static_cast<int64_t>(text.size()) / tokenizer->max_bytes_per_token());
    CHECK(tokenizer->max_bytes_per_token() == 16);
  }
  SECTION("when a vocabulary drops bytes") {
    file["model"]["vocab"].erase(ByteStandIn(0));
    CHECK(LoadTokenizer(file)->max_bytes_per_token() == std::numeric_limits<int64_t>::max());
  }
}

TEST_CASE("Tokenizer::FewestTokens bounds the tokens of a text from below") {
  json file = TinyTokenizer({{"a", "b"}, {"ab", "ab"}});
  const std::string text = "abababab aacca";
  // A token of four bytes contains "a" and "b", and no token contains " c".
  CHECK(LoadTokenizer(file)->FewestTokens(text) == 11 / 4 + 3);
  SECTION("when the file has added tokens") {
    file = WithAdded(file, {AddedTokenJson(300, "<bcc>", false)});
    CHECK(LoadTokenizer(file)->FewestTokens(text) == static_cast<int64_t>(7 / 4. + 4 / 5. + 2 / 5. + 1));
  }
  SECTION("when text shrinks before it is tokenised") {
    file["normalizer"] = {{"type", "NFC"}};
    const auto tokenizer = LoadTokenizer(file);
    CHECK(tokenizer->FewestTokens("\u1fbe\u0308\u0341!") == 2);
    CHECK(Encode(*tokenizer, "\u1fbe\u0308\u0341!").size() == 3);
  }
  SECTION("when a vocabulary drops bytes") {
    file["model"]["vocab"].erase(ByteStandIn('c'));
    CHECK(LoadTokenizer(file)->FewestTokens(text) == 11 / 4 + 1);
  }
}

}  // namespace
}  // namespace baton
