// Random text, and tokenizers of model families, for tests that cut text into parts.
#pragma once

#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "source_path.h"
#include "text/tokenizer_fixture.h"

namespace baton {

// Returns the tokenizer of test/golden/tokenizer_FAMILY.json.
inline std::unique_ptr<Tokenizer> GoldenTokenizer(const std::string& family) {
  std::ifstream file(SourcePath("test/golden/tokenizer_" + family + ".json"));
  return LoadTokenizer(nlohmann::json::parse(file)["tokenizer"]);
}

// Random text of parts that pre-tokenizers treat in surprising ways when something follows them.
inline std::string RandomText(std::mt19937& random) {
  static const std::vector<std::string> kParts = {
      " ",      "  ",     "\n",   "\r\n",   "\t",   "'", "'r",   "'re",   "'S",      "a",
      "word",   " word",  "1",    "12",     "1234", "!", "?!",   "é",     "e\u0301", "\u0301",
      "漢字",   "ー",     "🙂", "\u200d", "’",    "<", "<tag", "<tag>", "<tag>>",  "Ünï",
      "\u00a0", "\u2003", "x_y",  "don't",  "//",   "؟", "ك",    "한국",  "\u1100",  "\u1161"};
  std::string text;
  for (size_t parts = random() % 12; parts > 0; --parts) text += kParts[random() % kParts.size()];
  return text;
}

inline bool IsCharacterStart(std::string_view text, size_t at) {
  return at == text.size() || (text[at] & 0xC0) != 0x80;
}

}  // namespace baton
