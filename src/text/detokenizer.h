// The detokenizer, which turns a stream of tokens into text.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace baton {

// The state of one stream. It returns only whole UTF-8 characters, and replaces bytes that cannot
// become a character by U+FFFD. Special tokens have no text. The tokenizer must outlive this
// object.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // Adds a token. Returns the text that is complete now.
  std::string Push(TokenId id);
  // Ends the stream. Returns U+FFFD if a character is incomplete, and otherwise an empty string.
  std::string Finish();
  // Returns true if a character is incomplete.
  bool holds_back() const { return !pending_.empty(); }

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;  // the start of a UTF-8 character, at most 3 bytes
};

}  // namespace baton
