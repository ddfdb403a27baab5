#include "text/detokenizer.h"

#include <algorithm>
#include <random>
#include <span>

#include "catch.h"
#include "seeds.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "tokenizer_fixture.h"

namespace baton {
namespace {

std::string Decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Push(id);
  return text + detokenizer.Finish();
}

std::vector<TokenId> ByteIds(std::string_view bytes) {
  std::vector<TokenId> ids;
  for (const char byte : bytes) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

// A tokenizer whose tokens have up to 3 bytes from a few characters, so tokens may cut a character
// at any byte.
std::unique_ptr<Tokenizer> CuttingTokenizer() {
  return LoadTokenizer(TinyTokenizer({{"\xF0", "\x9F"},
                                      {"\xA6", "\x99"},
                                      {"\x9F", "\xA6"},
                                      {"\xC3", "\xA9"},
                                      {"a", "\xE2"},
                                      {"\x82", "\xAC"},
                                      {"\x99", "\xF0"},
                                      {"\xFF", "a"},
                                      {"\x82\xAC", "x"}}));
}

TEST_CASE("Detokenizer emits a character when its last byte has arrived") {
  const auto tokenizer = LoadTokenizer(TinyTokenizer());
  Detokenizer detokenizer(*tokenizer);
  CHECK(detokenizer.Push('a') == "a");
  CHECK(detokenizer.Push(0xF0) == "");
  CHECK(detokenizer.Push(0x9F) == "");
  CHECK(detokenizer.Push(0xA6) == "");
  CHECK(detokenizer.Push(0x99) == "🦙");
  CHECK(detokenizer.Finish() == "");
}

TEST_CASE("Detokenizer replaces impossible bytes at once") {
  const auto tokenizer = LoadTokenizer(TinyTokenizer());
  Detokenizer detokenizer(*tokenizer);
  CHECK(detokenizer.Push(0xFF) == "\uFFFD");
  CHECK(detokenizer.Push(0xE2) == "");
  CHECK(detokenizer.Push(0x82) == "");
  CHECK(detokenizer.Push('a') == "\uFFFDa");
  CHECK(detokenizer.Push(0x80) == "\uFFFD");
}

TEST_CASE("Detokenizer ends an unfinished character with one replacement character") {
  const auto tokenizer = LoadTokenizer(TinyTokenizer());
  Detokenizer detokenizer(*tokenizer);
  CHECK(detokenizer.Push(0xF0) == "");
  CHECK(detokenizer.Push(0x9F) == "");
  CHECK(detokenizer.Finish() == "\uFFFD");
  CHECK(detokenizer.Finish() == "");
}

// The cases are from The Unicode Standard, section 3.9, tables 3-8 to 3-11.
TEST_CASE("Detokenizer replaces maximal subparts") {
  const auto tokenizer = LoadTokenizer(TinyTokenizer());
  const std::string r = "\uFFFD";
  CHECK(Decode(*tokenizer, ByteIds("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41")) == r + r + r + r + r + r + r + r + "A");
  CHECK(Decode(*tokenizer, ByteIds("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41")) == r + r + r + r + r + r + r + r + "A");
  CHECK(Decode(*tokenizer, ByteIds("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42")) == r + r + r + r + r + "A" + r + r + "B");
  CHECK(Decode(*tokenizer, ByteIds("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41")) == r + r + r + r + "A");
}

TEST_CASE("Detokenizer emits nothing for special tokens and unknown ids") {
  nlohmann::json json = TinyTokenizer();
  json["added_tokens"] = {AddedTokenJson(300, "<|end|>", true), AddedTokenJson(301, "<tool>", false)};
  const auto tokenizer = LoadTokenizer(json);
  CHECK(Decode(*tokenizer, {300, 0xC3, -1, 0xA9, 299, 1'000'000, 301}) == "é<tool>");
  // A special token ends an incomplete character.
  CHECK(Decode(*tokenizer, {0xC3, 300, 0xA9}) == "\uFFFD\uFFFD");
}

TEST_CASE("Detokenizer begins inside the character that earlier tokens begin") {
  nlohmann::json json = TinyTokenizer({{"x", "\xF0"}});
  json["added_tokens"] = {AddedTokenJson(300, "<|end|>", true)};
  const auto tokenizer = LoadTokenizer(json);
  const auto after = [&](const std::vector<TokenId>& before, const std::vector<TokenId>& ids) {
    Detokenizer detokenizer(*tokenizer);
    detokenizer.BeginAfter(before);
    std::string text;
    for (const TokenId id : ids) text += detokenizer.Push(id);
    return text + detokenizer.Finish();
  };
  CHECK(after({'a', 0xF0, 0x9F}, {0x8C, 0xB6}) == "🌶");
  CHECK(after({256, 0x9F, 999, 0x8C}, {0xB6, '!'}) == "🌶!");
  CHECK(after({'a', 0xF0, 0x9F}, {'b'}) == "\uFFFDb");
  CHECK(after({0xF0, 0x9F, 300}, {0x8C}) == "\uFFFD");
  CHECK(after({0xC3, 0xA9}, {'b'}) == "b");
  CHECK(after({0x9F, 0x8C, 0xB6}, {'b'}) == "b");
  CHECK(after({}, {'b'}) == "b");
}

TEST_CASE("Detokenizer emits valid UTF-8 parts of the whole text for any tokens") {
  const auto tokenizer = CuttingTokenizer();
  const std::string alphabet = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x99\xFF\xED\xA0\xF4\x80";
  ForEachSeed(300, [&](uint64_t seed) {
    std::mt19937 rng(seed);
    std::vector<TokenId> ids;
    std::string bytes;
    for (int i = 0; i < 40; ++i) {
      const bool merged = rng() % 3 == 0;
      const TokenId id = merged ? static_cast<TokenId>(256 + rng() % 9)
                                : static_cast<unsigned char>(alphabet[rng() % alphabet.size()]);
      ids.push_back(id);
      bytes += tokenizer->TokenBytes(id);
    }
    Detokenizer detokenizer(*tokenizer);
    std::string streamed;
    for (const TokenId id : ids) {
      const std::string part = detokenizer.Push(id);
      CHECK(ValidUtf8Prefix(part) == part.size());
      streamed += part;
    }
    streamed += detokenizer.Finish();
    CHECK(streamed == Decode(*tokenizer, ByteIds(bytes)));
  });
}

TEST_CASE("Texts of the parts of a token sequence join to the text of the whole") {
  nlohmann::json json = TinyTokenizer({{"\xF0", "\x9F"}, {"a", "\xE2"}, {"\x82", "\xAC"}, {"\x82\xAC", "x"}});
  json["added_tokens"] = {AddedTokenJson(300, "<|end|>", true)};
  const auto tokenizer = LoadTokenizer(json);
  const std::string alphabet = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8C\xB6\xFF\xED\xA0";
  ForEachSeed(1000, [&](uint64_t seed) {
    std::mt19937 rng(seed);
    std::vector<TokenId> ids;
    for (size_t i = 0; i < 20; ++i) {
      constexpr TokenId kOthers[] = {256, 257, 259, 300, 299};
      ids.push_back(rng() % 4 == 0 ? kOthers[rng() % 5]
                                   : static_cast<unsigned char>(alphabet[rng() % alphabet.size()]));
    }
    std::string joined;
    for (size_t begin = 0; begin < ids.size();) {
      const size_t end = std::min(begin + rng() % 5, ids.size());  // a part may be empty
      Detokenizer detokenizer(*tokenizer);
      detokenizer.BeginAfter(std::span(ids).first(begin));
      for (size_t i = begin; i < end; ++i) {
        const bool breaks = detokenizer.Breaks(ids[i]);
        const std::string text = detokenizer.Push(ids[i]);
        CHECK((!breaks || text.starts_with("\uFFFD")));
        joined += text;
      }
      if (end == ids.size()) joined += detokenizer.Finish();
      begin = end;
    }
    CHECK(joined == Decode(*tokenizer, ids));
  });
}

}  // namespace
}  // namespace baton
