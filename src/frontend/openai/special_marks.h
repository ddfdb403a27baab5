// Puts special tokens that begin or end tool calls back into an answer's text, which leaves special
// tokens out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "request/answers.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace baton {

// The state of one choice. Text may arrive later than its tokens, or never. The position of a mark
// in the text is therefore derived from the tokens.
class SpecialMarks {
 public:
  // Looks for those of `names` that are special tokens. The tokenizer must outlive this object.
  SpecialMarks(const Tokenizer& tokenizer, const std::vector<std::string>& names);

  // Returns the update's text with the marks inserted.
  std::string Push(const TokenUpdate& update);

 private:
  struct Mark {
    int64_t at;  // bytes of text before it
    TokenId id;
  };

  const Tokenizer& tokenizer_;
  std::vector<TokenId> special_;
  Detokenizer detokenizer_;
  int64_t made_ = 0;         // bytes of the text of all tokens so far, with stop strings
  int64_t shown_ = 0;        // bytes of it that updates have contained
  std::vector<Mark> marks_;  // marks not yet inserted, in order
};

}  // namespace baton
