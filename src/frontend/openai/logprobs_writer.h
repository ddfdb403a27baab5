// Writes log probabilities in the formats of chats and of completions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "request/answers.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace baton {

// Returns the log probabilities of a prompt in vLLM's form: null for the first token, then an
// object for each token. `top` bounds the most likely tokens of each.
std::string PromptLogprobsJson(const PromptLogprobs& prompt, size_t top, const Tokenizer& tokenizer);

// The log probabilities of one choice.
class LogprobsWriter {
 public:
  // `offset` is the number of code points before the first token's text. If `as_ids` is set, the
  // name of a token has its id. The tokenizer must outlive this object.
  LogprobsWriter(const Tokenizer& tokenizer, bool chat, int64_t offset, bool as_ids = false)
      : tokenizer_(tokenizer), chat_(chat), as_ids_(as_ids), shown_(tokenizer), offset_(offset) {}

  // Adds the tokens of a completion's prompt, which comes before the first update's tokens. `echo`
  // is the text of the prompt in the answer. `top` bounds the most likely tokens of each.
  void AddPrompt(const PromptLogprobs& prompt, std::string_view echo, size_t top);
  // REQUIRES: the update has log probabilities for each of its tokens.
  void Add(const TokenUpdate& update);
  bool empty() const { return count_ == 0; }
  // Returns the JSON value for all tokens since the last Take, or null if there are none.
  std::string Take();

 private:
  // Returns the name of a token of a chat or a completion.
  std::string NameOf(TokenId id) const;
  // Appends "token", "logprob" and "bytes" of a chat.
  void AppendToken(std::string& out, TokenId id, float logprob) const;
  void AddForChat(TokenId id, const TokenLogprobs& logprobs);
  void AddForCompletion(TokenId id, const TokenLogprobs& logprobs);
  // Add an element to the lists of a completion.
  void BeginElement(TokenId id, int64_t offset);
  void AddLogprobs(TokenId id, const TokenLogprobs& logprobs, size_t top);

  const Tokenizer& tokenizer_;
  const bool chat_, as_ids_;
  Detokenizer shown_;  // gives the offset of each token's text
  int64_t offset_;
  int64_t count_ = 0;
  std::string content_;  // elements of a chat's list
  // Elements of a completion's lists.
  std::string tokens_, token_logprobs_, tops_, offsets_;
};

}  // namespace baton
