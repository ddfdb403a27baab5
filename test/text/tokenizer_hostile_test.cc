// Tests that the tokenizer accepts any bytes. The long inputs would take minutes if any step were
// quadratic.
#include <random>

#include "catch.h"
#include "seeds.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "tokenizer_fixture.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr size_t kMebibyte = size_t{1} << 20;
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

json Llama3Like() {
  json tokenizer = TinyTokenizer({{"a", "a"}, {"aa", "aa"}, {" ", " "}, {"  ", "  "}, {"\xFF", "\xFF"}, {"\n", "\n"}});
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kLlama3Pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  json byte_level = tokenizer["pre_tokenizer"];
  byte_level["use_regex"] = false;
  tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
  tokenizer["added_tokens"] = {AddedTokenJson(300, "<|end|>", true)};
  return tokenizer;
}

std::string Repeat(std::string_view unit) {
  std::string text;
  while (text.size() < kMebibyte) text += unit;
  return text;
}

TEST_CASE("Tokenizer encodes a mebibyte of anything without losing a byte") {
  const auto tokenizer = LoadTokenizer(Llama3Like());
  for (const std::string unit :
       {"a", " ", "0", "\n", "\r", "!", "🦙", "\xFF", "\x80\xF0", "<|end|", " \n", " a", "é", "'"}) {
    CAPTURE(unit);
    const std::string text = Repeat(unit);
    // A comparison inside CHECK would print a mebibyte.
    const bool equal = Bytes(*tokenizer, Encode(*tokenizer, text)) == text;
    CHECK(equal);
  }
  const std::string spaces = std::string(kMebibyte, ' ') + "a";
  const bool equal = Bytes(*tokenizer, Encode(*tokenizer, spaces)) == spaces;
  CHECK(equal);
}

TEST_CASE("Tokenizer reorders a mebibyte of combining marks") {
  json tokenizer = Llama3Like();
  tokenizer["normalizer"] = {{"type", "NFC"}};
  const auto loaded = LoadTokenizer(tokenizer);
  const std::string text = Repeat("\u0301\u0316");  // classes 230 and 220
  const std::string ordered = Bytes(*loaded, Encode(*loaded, text));
  REQUIRE(ordered.size() == text.size());
  const bool in_order = ordered.substr(0, ordered.size() / 2) == Repeat("\u0316").substr(0, ordered.size() / 2);
  CHECK(in_order);
}

TEST_CASE("Tokenizer encodes random bytes without losing a byte") {
  const auto tokenizer = LoadTokenizer(Llama3Like());
  ForEachSeed(200, [&](uint64_t seed) {
    std::mt19937 rng(seed);
    std::string text(rng() % 300, '\0');
    for (char& byte : text)
      byte = static_cast<char>(rng() % 4 == 0 ? rng() : "a \n'\xF0\x9F\xA6\x99\xE2<|"[rng() % 11]);
    CHECK(Bytes(*tokenizer, tokenizer->Encode(text, Tokenizer::SpecialTokens::kAsText)) == text);
  });
}

TEST_CASE("Tokenizer makes one pre-token of a run of invalid UTF-8") {
  const auto tokenizer = LoadTokenizer(TinyTokenizer({{"\xFF", "\xFF"}, {"\xFF", "a"}}));
  CHECK(Encode(*tokenizer,
               "a\xFF\xFF"
               "a") == std::vector<TokenId>{'a', 256, 'a'});
}

TEST_CASE("PreTokenizer stops an exploding pattern at the limit and keeps the rest whole") {
  const std::vector<std::string> patterns = {"(a+)+b"};
  const auto pre_tokenizer = PreTokenizer::Create(patterns);
  REQUIRE(pre_tokenizer.ok());
  std::vector<std::string> pieces;
  const std::string text = "ab" + std::string(60, 'a');
  pre_tokenizer->Split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  CHECK(pieces == std::vector<std::string>{"ab", std::string(60, 'a')});
}

TEST_CASE("PreTokenizer matches a pattern that needs more stack than compiled code has") {
  const std::vector<std::string> patterns = {"(?:[ab]|xy)+c"};
  const auto pre_tokenizer = PreTokenizer::Create(patterns);
  REQUIRE(pre_tokenizer.ok());
  std::string text;
  for (int i = 0; i < 20000; ++i) text += i % 2 ? "a" : "xy";
  text += "cd";
  std::vector<size_t> sizes;
  pre_tokenizer->Split(text, [&](std::string_view piece) { sizes.push_back(piece.size()); });
  CHECK(sizes == std::vector<size_t>{30001, 1});
}

}  // namespace
}  // namespace baton
