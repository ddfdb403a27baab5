// Token ids as text that JSON can hold.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace baton {

// With the names of special tokens. UTF-8: what is none becomes U+FFFD.
std::string TokensText(const Tokenizer& tokenizer, std::span<const TokenId> ids);
// `bytes` with U+FFFD for what is not UTF-8.
std::string ToUtf8(std::string_view bytes);

}  // namespace baton
