// Puts special tokens that begin or end tool calls back into the text, which leaves special tokens out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "request/answers.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace baton {

// Of one choice. Text comes later than its tokens, if at all: so it is told from the tokens where in the text a mark
// is.
class SpecialMarks {
 public:
  // Of `names`, those that are special tokens. The tokenizer must outlive this.
  SpecialMarks(const Tokenizer& tokenizer, const std::vector<std::string>& names);

  // The update's text, with the marks that are in it.
  std::string Push(const TokenUpdate& update);

 private:
  struct Mark {
    int64_t at;  // bytes of text before it
    TokenId id;
  };

  const Tokenizer& tokenizer_;
  std::vector<TokenId> special_;
  Detokenizer detokenizer_;
  int64_t made_ = 0;         // bytes of text of the tokens so far, stop strings' too
  int64_t shown_ = 0;        // of these, in updates
  std::vector<Mark> marks_;  // not yet shown, in order
};

}  // namespace baton
