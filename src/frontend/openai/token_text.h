// Converts token ids to text for JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace baton {

// Returns the text of the tokens, with the names of special tokens. Bytes that are not UTF-8 become
// U+FFFD.
std::string TokensText(const Tokenizer& tokenizer, std::span<const TokenId> ids);
// Replaces bytes that are not UTF-8 by U+FFFD.
std::string ToUtf8(std::string_view bytes);

}  // namespace baton
