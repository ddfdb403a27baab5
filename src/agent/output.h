// The output of one request, or a value, as prompts that refer to it receive it (design ideas 2 and
// 3).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "text/detokenizer.h"
#include "text/reasoning_parser.h"
#include "text/tokenizer.h"

namespace baton {

// The output of one request, or a value. Prompts receive only tokens that no later event, such as a
// stop string, can remove. The output omits special tokens, as its text does, because a model must
// not write control tokens into another request's prompt.
//
// A prompt with the same tokenizer receives the generated token ids. If a stop string begins within
// a token, the text before the stop string is encoded again. The ids depend only on tokens and
// text, not on the sizes of the updates. A prompt with another tokenizer receives Encode(text). A
// text without a tokenizer of its own reaches all prompts as Encode(text), as a segment of text
// does.
//
// The output of a model that thinks has two parts, the thoughts and the answer. ReasoningParser
// separates them, so the answer is the `content` of the OpenAI API. If the closing tag ends inside
// a token, prompts with the same tokenizer receive Encode(answer) too.
class Output {
 public:
  // `tokenizer` is that of the model that generates the output. All tokenizers must outlive this.
  explicit Output(const Tokenizer& tokenizer) : tokenizer_(&tokenizer), detokenizer_(tokenizer) {}
  // An output that is a text.
  Output() = default;

  // Begins the output after its request's prompt. `before` are the prompt's last tokens, if the
  // prompt ends inside a character. REQUIRES: nothing was pushed, and the output has a tokenizer.
  void BeginAfter(std::span<const TokenId> before, Thinking thinking);
  // Appends generated tokens and text, as in a TokenUpdate. Over the whole stream, `text` is the
  // text of the tokens before the stop string or stop id. REQUIRES: the output is not closed,
  // `text` is valid UTF-8, and there are no tokens if the output is a text.
  void Push(std::span<const TokenId> tokens, std::string_view text);
  // Ends the output. REQUIRES: the output is not closed.
  void Close();

  enum class Part { kAnswer, kWhole };
  struct Tokens {
    std::span<const TokenId> ids{};
    // Lower bound on the tokens of the whole output: at least the number of ids.
    int64_t at_least = 0;
  };
  // Returns the tokens for prompts of a model with tokenizer `reader`. Until the output is closed,
  // later calls return the same tokens and possibly more. Valid until the next call of Push, Close
  // or TokensFor. If the output certainly has more than `most` tokens, the function encodes none of
  // its text, and `ids` may lack tokens.
  Tokens TokensFor(const Tokenizer& reader, Part part, int64_t most);
  // Returns the approximate memory of this object.
  int64_t bytes() const;

 private:
  // The fewest tokens whose text ends at the end of a character. A character that the prompt
  // begins, and that no token of the output continues, is a group without tokens.
  struct Group {
    size_t tokens_end = 0;  // in tokens_
    size_t end = 0;         // end of its text in text_
  };
  struct Encoding {
    std::vector<TokenId> ids;
    size_t encoded = 0;   // bytes of text_ that `ids` stand for
    size_t try_from = 0;  // the size of text_ that is worth another attempt
    bool complete = false;
  };
  // The first token and byte of the answer.
  struct Start {
    size_t token = 0;  // in tokens_
    size_t text = 0;   // in text_
    bool splits_token = false;
  };
  void FindAnswer(std::string_view text);
  void EndGroup();
  void Seal();
  Tokens Extend(const Tokenizer& reader, Encoding& encoding, int64_t most) const;

  const Tokenizer* tokenizer_ = nullptr;    // null: the output is a text
  std::optional<Detokenizer> detokenizer_;  // unset: the output is a text
  std::string text_;                        // text that Push received
  // Bytes of text that the tokens stand for: at least text_.size(), except for a cut-off character.
  size_t made_ = 0;
  // Groups whose text text_ does not contain as a whole. The last may wait for the end of a
  // character.
  std::deque<Group> pending_;
  // True if the last group waits for the end of a character.
  bool last_is_open_ = false;
  // Sealed tokens, and then the tokens of pending_.
  std::vector<TokenId> tokens_;
  // Number of sealed tokens: those that no later event can remove.
  size_t sealed_ = 0;
  // End of their text in text_.
  size_t sealed_end_ = 0;
  absl::btree_map<std::pair<Digest, Part>, Encoding> encoded_;  // by tokenizer
  // Reads the thoughts until the answer begins. Unset: the output has no thoughts.
  std::optional<ReasoningParser> thoughts_;
  size_t read_ = 0;                        // bytes that it has read
  std::optional<Start> answer_ = Start();  // unset: has not begun
  bool closed_ = false;
};

}  // namespace baton
