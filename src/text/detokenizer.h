// Tokens to text.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace baton {

// Turns one stream of tokens into text, never emitting half a UTF-8 character; bytes that can never become one are
// replaced by U+FFFD. Special tokens give no text. The tokenizer must outlive it.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string Push(TokenId id);
  std::string Finish();  // what is still held back
  bool holds_back() const { return !pending_.empty(); }

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;  // an unfinished UTF-8 character, at most 3 bytes
};

}  // namespace baton
