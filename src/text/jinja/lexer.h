// Cuts a template into text and tags, with white space control as transformers sets it (trim_blocks, lstrip_blocks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::jinja {

enum class TokenKind {
  kText,         // outside of tags
  kBlockBegin,   // {%
  kBlockEnd,     // %}
  kOutputBegin,  // {{
  kOutputEnd,    // }}
  kName,
  kString,  // unescaped
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 1;
};

// https://jinja.palletsprojects.com/en/stable/templates/#whitespace-control
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace baton::jinja
