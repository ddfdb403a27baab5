// Puts special tokens that begin or end tool calls back into an answer's text, which leaves special
// tokens out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "request/answers.h"
#include "text/output_text.h"
#include "text/tokenizer.h"

namespace baton {

// The state of one choice. Text may arrive later than its tokens, or never. The places of marks are
// therefore derived from the tokens, as the decode worker derives the text. A mark that belongs to
// a stop string, or whose token is a stop id, is not put back. Copies share the stop strings.
class SpecialMarks {
 public:
  // Looks for those of `names` that are special tokens. `stops` and `min_tokens` are those of the
  // request. The tokenizer must outlive this object.
  SpecialMarks(const Tokenizer& tokenizer, const std::vector<std::string>& names, std::span<const std::string> stops,
               int64_t min_tokens);

  // Returns the update's text with the marks inserted.
  std::string Push(const TokenUpdate& update);

 private:
  void TakeMarks();
  bool IsMark(TokenId id) const;

  const Tokenizer& tokenizer_;
  const std::vector<TokenId> special_;  // none: updates pass unchanged
  OutputText output_text_;
  int64_t shown_ = 0;                    // bytes of text that updates have contained
  std::vector<OutputText::Name> marks_;  // marks not yet inserted, in order
};

}  // namespace baton
