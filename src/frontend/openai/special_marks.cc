#include "frontend/openai/special_marks.h"

#include <algorithm>
#include <iterator>

namespace baton {
namespace {

std::vector<TokenId> SpecialOf(const Tokenizer& tokenizer, const std::vector<std::string>& names) {
  std::vector<TokenId> special;
  for (const std::string& name : names) {
    const std::vector<TokenId> ids = tokenizer.Encode(name, Tokenizer::SpecialTokens::kParse);
    if (ids.size() == 1 && tokenizer.IsSpecial(ids[0])) special.push_back(ids[0]);
  }
  return special;
}

}  // namespace

SpecialMarks::SpecialMarks(const Tokenizer& tokenizer, const std::vector<std::string>& names,
                           std::span<const std::string> stops, int64_t min_tokens)
    : tokenizer_(tokenizer),
      special_(SpecialOf(tokenizer, names)),
      output_text_(tokenizer, special_.empty() ? std::span<const std::string>() : stops, min_tokens) {}

bool SpecialMarks::IsMark(TokenId id) const { return std::ranges::find(special_, id) != special_.end(); }

void SpecialMarks::TakeMarks() {
  std::ranges::copy_if(output_text_.names(), std::back_inserter(marks_),
                       [this](const OutputText::Name& name) { return IsMark(name.id); });
}

std::string SpecialMarks::Push(const TokenUpdate& update) {
  if (special_.empty()) return update.text;
  if (!update.before.empty()) output_text_.BeginAfter(update.before);
  for (const TokenId id : update.tokens) {
    output_text_.Push(id);
    TakeMarks();
  }
  if (update.finish) {
    output_text_.Finish();
    TakeMarks();
    // The output ended at its last token. If this token completes no stop string, it is a stop
    // id.
    const bool by_id = update.finish == FinishReason::kStop && !output_text_.stopped();
    if (by_id && !update.tokens.empty() && IsMark(update.tokens.back())) marks_.pop_back();
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
