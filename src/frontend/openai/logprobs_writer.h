// Log probabilities in the shapes of chats and of completions.
#pragma once

#include <cstdint>
#include <string>

#include "request/answers.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace baton {

// Of one choice.
class LogprobsWriter {
 public:
  // `offset`: code points of the text before the first token. The tokenizer must outlive this.
  LogprobsWriter(const Tokenizer& tokenizer, bool chat, int64_t offset)
      : tokenizer_(tokenizer), chat_(chat), shown_(tokenizer), offset_(offset) {}

  // REQUIRES: the update has log probabilities for each of its tokens.
  void Add(const TokenUpdate& update);
  bool empty() const { return count_ == 0; }
  // The JSON value for all that came since the last Take; null if nothing did.
  std::string Take();

 private:
  void AddForChat(TokenId id, const TokenLogprobs& logprobs);
  void AddForCompletion(TokenId id, const TokenLogprobs& logprobs);

  const Tokenizer& tokenizer_;
  const bool chat_;
  Detokenizer shown_;  // tells where a token's text begins
  int64_t offset_;
  int64_t count_ = 0;
  std::string content_;                                   // of a chat: the list's elements
  std::string tokens_, token_logprobs_, tops_, offsets_;  // of a completion: the lists' elements
};

}  // namespace baton
