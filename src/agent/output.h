// One request's output as the prompts that refer to it read it (design ideas 2 and 3).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace baton {

// Gives a prompt only what nothing can take back. Special tokens are left out, as they are in the text: a model must
// not be able to write control tokens into another's prompt.
//
// A reader with the same tokenizer gets the token ids as they were made. Where a stop string begins within a token,
// what is left of that token is encoded anew: the ids are a function of tokens and text, however these arrived. A
// reader with another tokenizer gets Encode(text).
class Output {
 public:
  // The tokenizer of the model that makes it; it and those of readers must outlive this.
  explicit Output(const Tokenizer& tokenizer) : tokenizer_(tokenizer), detokenizer_(tokenizer) {}

  // As in a TokenUpdate: over the whole stream, `text` is the text of the tokens before the stop string or stop id.
  void Push(std::span<const TokenId> tokens, std::string_view text);
  // Nothing more comes. Not OK: it failed, and what has come is a part of it.
  void Close(absl::Status status);

  bool closed() const { return closed_; }
  const absl::Status& status() const { return status_; }  // REQUIRES: closed
  // For prompts of a model with this tokenizer. Later calls give more, never less, until the output is closed. Valid
  // until the next call of anything.
  std::span<const TokenId> TokensFor(const Tokenizer& reader);
  int64_t bytes() const;  // of memory, about

 private:
  // The first tokens whose text ends at one character.
  struct Group {
    size_t tokens_end = 0;  // within tokens_
    size_t end = 0;         // of its text within text_
  };
  struct Encoding {
    std::vector<TokenId> ids;
    size_t encoded = 0;   // bytes of text_ that they stand for
    size_t try_from = 0;  // size of text_ from which another look is worth its time
    bool complete = false;
  };
  void Seal();
  void Extend(const Tokenizer& reader, Encoding& encoding) const;

  const Tokenizer& tokenizer_;
  Detokenizer detokenizer_;
  std::string text_;           // shown
  size_t made_ = 0;            // bytes of text that the tokens stand for, >= text_.size() but for a cut-off character
  std::deque<Group> pending_;  // not all of their text has been shown; the last may wait for its character's end
  bool last_is_open_ = false;
  std::vector<TokenId> tokens_;                // sealed ones, then those of pending_
  size_t sealed_ = 0;                          // tokens
  size_t sealed_end_ = 0;                      // of their text within text_
  absl::btree_map<Digest, Encoding> encoded_;  // by tokenizer
  bool closed_ = false;
  absl::Status status_;
};

}  // namespace baton
