// The bound on a model's thinking: after so many tokens, the mark that ends it is forced.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace baton {

// The tokens that begin and end a model's thinking.
struct ThinkingMarks {
  TokenId begin = 0;  // <think>
  TokenId end = 0;    // </think>
};

// The state of one output. Only its first thinking counts.
class ThinkingLimit {
 public:
  // `begun`: the prompt ends with the mark that begins thinking.
  ThinkingLimit(const ThinkingMarks& marks, bool begun, int32_t budget)
      : marks_(marks), budget_(budget), stage_(begun ? Stage::kInside : Stage::kBefore) {}

  // Returns true if the next token must be the end mark.
  bool forces() const { return stage_ == Stage::kInside && thought_ >= budget_; }
  // Returns true if the token `ahead` positions after the next one is not forced, whatever the
  // tokens in between are. The next token may be the one that begins thinking.
  bool IsFree(int64_t ahead) const {
    return stage_ == Stage::kOver || thought_ + ahead < int64_t{budget_} + (stage_ == Stage::kBefore);
  }
  void Accept(TokenId id) {
    if (stage_ == Stage::kBefore && id == marks_.begin) {
      stage_ = Stage::kInside;
    } else if (stage_ == Stage::kInside && id == marks_.end) {
      stage_ = Stage::kOver;
    } else if (stage_ == Stage::kInside) {
      ++thought_;
    }
  }
  TokenId end_mark() const { return marks_.end; }

 private:
  enum class Stage { kBefore, kInside, kOver };

  ThinkingMarks marks_;
  int32_t budget_;
  Stage stage_;
  int64_t thought_ = 0;  // tokens of thinking
};

}  // namespace baton
