#include "frontend/openai/token_text.h"

#include <algorithm>

#include "text/utf8.h"

namespace baton {

std::string ToUtf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t valid = ValidUtf8Prefix(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    text += "\uFFFD";
    bytes.remove_prefix(FirstUtf8Unit(bytes).size);
  }
  return text;
}

std::string TokensText(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  std::string bytes;
  for (const TokenId id : ids) bytes += tokenizer.TokenBytes(id);
  return ToUtf8(bytes);
}

}  // namespace baton
