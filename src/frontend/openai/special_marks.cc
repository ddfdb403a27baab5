#include "frontend/openai/special_marks.h"

#include <algorithm>

namespace baton {

SpecialMarks::SpecialMarks(const Tokenizer& tokenizer, const std::vector<std::string>& names)
    : tokenizer_(tokenizer), detokenizer_(tokenizer) {
  for (const std::string& name : names) {
    const std::vector<TokenId> ids = tokenizer.Encode(name, Tokenizer::SpecialTokens::kParse);
    if (ids.size() == 1 && tokenizer.IsSpecial(ids[0])) special_.push_back(ids[0]);
  }
}

std::string SpecialMarks::Push(const TokenUpdate& update) {
  if (special_.empty()) return update.text;
  if (!update.before.empty()) detokenizer_.BeginAfter(update.before);
  for (const TokenId id : update.tokens) {
    if (std::ranges::find(special_, id) != special_.end()) marks_.push_back({made_, id});
    made_ += static_cast<int64_t>(detokenizer_.Push(id).size());
  }
  std::string text;
  std::string_view rest = update.text;
  size_t placed = 0;
  for (; placed < marks_.size(); ++placed) {
    const int64_t before = marks_[placed].at - shown_;
    if (before > std::ssize(rest)) break;
    text += rest.substr(0, static_cast<size_t>(before));
    rest.remove_prefix(static_cast<size_t>(before));
    shown_ += before;
    text += tokenizer_.TokenBytes(marks_[placed].id);
  }
  marks_.erase(marks_.begin(), marks_.begin() + static_cast<std::ptrdiff_t>(placed));
  text += rest;
  shown_ += std::ssize(rest);
  return text;
}

}  // namespace baton
