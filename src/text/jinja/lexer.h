// The lexer of templates. It cuts a template into text and tags, with the white space control of
// transformers (trim_blocks, lstrip_blocks).
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

// Returns the tokens of a template, with a token kEnd at the end. Fails with INVALID_ARGUMENT and
// the line. The rules of white space are those of
// https://jinja.palletsprojects.com/en/stable/templates/#whitespace-control
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace baton::jinja
