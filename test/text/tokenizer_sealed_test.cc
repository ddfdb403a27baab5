// Tests that text in parts gives the same ids as the whole text, and that each id comes as early as
// it is certain.
#include <random>

#include "catch.h"
#include "random_text.h"
#include "seeds.h"
#include "text/tokenizer.h"
#include "tokenizer_fixture.h"

namespace baton {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;
using SpecialTokens = Tokenizer::SpecialTokens;

void CheckEveryCut(const Tokenizer& tokenizer, const std::string& text) {
  const Ids whole = tokenizer.Encode(text, SpecialTokens::kAsText);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    if (!IsCharacterStart(text, cut)) continue;
    Ids ids;
    const size_t sealed = tokenizer.EncodeSealed(std::string_view(text).substr(0, cut), ids);
    CAPTURE(text, cut, sealed);
    REQUIRE(sealed <= cut);
    const Ids rest = tokenizer.Encode(text.substr(sealed), SpecialTokens::kAsText);
    ids.insert(ids.end(), rest.begin(), rest.end());
    REQUIRE(ids == whole);
    REQUIRE(tokenizer.FewestTokens(std::string_view(text).substr(0, cut)) <= std::ssize(whole));
  }
}

TEST_CASE("Tokenizer::EncodeSealed returns ids that no later text changes") {
  ForEachSeed(1, [](uint64_t seed) {
    std::mt19937 random(seed);
    for (const std::string family : {"gpt2", "smollm", "llama3", "qwen2"}) {
      CAPTURE(family);
      const auto tokenizer = GoldenTokenizer(family);
      for (int i = 0; i < 400; ++i) CheckEveryCut(*tokenizer, RandomText(random));
    }
  });
}

TEST_CASE("Tokenizer::EncodeSealed withholds a token of the file while it may continue") {
  for (const bool normalized : {false, true}) {
    json file = TinyTokenizer({{"t", "a"}});
    for (const auto& [id, content] : {std::pair(300, "<tag>"), std::pair(301, "<tag>>"), std::pair(302, "é!")}) {
      json token = AddedTokenJson(id, content, false);
      token["normalized"] = normalized;
      file["added_tokens"].push_back(token);
    }
    if (normalized) file["normalizer"] = {{"type", "NFC"}};
    const auto tokenizer = LoadTokenizer(file);
    ForEachSeed(1, [&](uint64_t seed) {
      std::mt19937 random(seed);
      for (int i = 0; i < 400; ++i) CheckEveryCut(*tokenizer, RandomText(random));
    });
    Ids ids;
    CHECK(tokenizer->EncodeSealed("a <tag>", ids) == 1);
    CHECK(tokenizer->EncodeSealed("<tag>xy", ids) == 5);
  }
}

TEST_CASE("Tokenizer::EncodeSealed returns all but the last word or two of plain text") {
  for (const std::string family : {"gpt2", "smollm", "llama3", "qwen2"}) {
    CAPTURE(family);
    Ids ids;
    CHECK(GoldenTokenizer(family)->EncodeSealed("The capital of France, as 12 people say, is Par", ids) >= 43);
  }
}

TEST_CASE("Tokenizer::EncodeSealed returns nothing when a pattern looks behind") {
  json file = TinyTokenizer();
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", "(?<=a)b"}}}, {"behavior", "Isolated"}, {"invert", false}};
  json byte_level = file["pre_tokenizer"];
  byte_level["use_regex"] = false;
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
  Ids ids;
  CHECK(LoadTokenizer(file)->EncodeSealed("ab ab ab", ids) == 0);
  CHECK(ids.empty());
}

}  // namespace
}  // namespace baton
