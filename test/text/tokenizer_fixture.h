// Small tokenizers that tests build in a directory of their own.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catch.h"
#include "nlohmann/json.hpp"
#include "temp_dir.h"
#include "text/tokenizer.h"

namespace baton {

// Returns the character for a byte in byte-level files. The tokenizer's reader inverts it.
inline std::string ByteStandIn(int byte) {
  const auto printable = [](int b) { return (b > 32 && b < 127) || (b > 160 && b != 173); };
  int code_point = byte;
  if (!printable(byte)) {
    code_point = 256;
    for (int b = 0; b < byte; ++b) code_point += !printable(b);
  }
  if (code_point < 128) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 63))};
}

inline std::string StandIns(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += ByteStandIn(static_cast<unsigned char>(byte));
  return text;
}

inline nlohmann::json AddedTokenJson(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// Returns a tokenizer with all bytes (id = byte) and the results of the merges, with ids from 256
// on. It splits like GPT-2.
inline nlohmann::json TinyTokenizer(std::initializer_list<std::pair<const char*, const char*>> merges = {}) {
  nlohmann::json vocab, rules = nlohmann::json::array();
  int next = 0;
  for (; next < 256; ++next) vocab[ByteStandIn(next)] = next;
  for (const auto& [left, right] : merges) {
    vocab.emplace(StandIns(std::string(left) + right), next++);
    rules.push_back({StandIns(left), StandIns(right)});
  }
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", rules}}}};
}

inline absl::StatusOr<std::unique_ptr<Tokenizer>> TryLoad(const std::string& tokenizer_json) {
  const TempDir directory;
  directory.Write("tokenizer.json", tokenizer_json);
  return Tokenizer::Load(directory.path());
}

inline std::unique_ptr<Tokenizer> LoadTokenizer(const nlohmann::json& tokenizer) {
  auto loaded = TryLoad(tokenizer.dump());
  INFO(loaded.status());
  REQUIRE(loaded.ok());
  return *std::move(loaded);
}

inline std::vector<TokenId> Encode(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.Encode(text, Tokenizer::SpecialTokens::kParse);
}

inline std::string Bytes(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string bytes;
  for (const TokenId id : ids) bytes += tokenizer.TokenBytes(id);
  return bytes;
}

}  // namespace baton
