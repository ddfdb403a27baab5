// The detokenizer, which turns a stream of tokens into text.
#pragma once

#include <span>
#include <string>

#include "text/tokenizer.h"

namespace baton {

// Returns the last tokens of `ids` if `ids` end inside a character: those that have its bytes.
// Returns an empty span otherwise.
std::span<const TokenId> UnfinishedEnd(const Tokenizer& tokenizer, std::span<const TokenId> ids);

// The state of one stream. It returns only whole UTF-8 characters, and replaces bytes that cannot
// become a character by U+FFFD. Special tokens have no text, and end an incomplete character. The
// tokenizer must outlive this object.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // Begins the stream after the tokens `before`, for example after a prompt. If they end inside a
  // character, the stream's text begins with that character. REQUIRES: nothing was pushed.
  void BeginAfter(std::span<const TokenId> before);
  // Adds a token. Returns the text that is complete now.
  std::string Push(TokenId id);
  // Ends the stream. Returns U+FFFD if a character is incomplete, and otherwise an empty string.
  std::string Finish();
  // Returns true if a character is incomplete.
  bool holds_back() const { return !pending_.empty(); }
  // Returns true if a character is incomplete and the token does not continue it. The text that
  // Push(id) returns then begins with U+FFFD, which is the text of earlier tokens.
  bool Breaks(TokenId id) const;

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;  // the start of a UTF-8 character, at most 3 bytes
};

}  // namespace baton
