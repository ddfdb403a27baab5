#include "agent/output.h"

#include <algorithm>

#include "base/check.h"

namespace baton {

void Output::BeginAfter(std::span<const TokenId> before, Thinking thinking) {
  detokenizer_->BeginAfter(before);
  if (thinking == Thinking::kNone) return;
  thoughts_.emplace(thinking);
  answer_.reset();
}

void Output::Push(std::span<const TokenId> tokens, std::string_view text) {
  BATON_CHECK(!closed_, "Push after Close");
  BATON_CHECK(tokenizer_ != nullptr || tokens.empty(), "a text has no tokens of its own");
  text_ += text;
  for (const TokenId token : tokens) {
    const bool is_special = tokenizer_->IsSpecial(token), ends = is_special && detokenizer_->holds_back();
    std::string shown = detokenizer_->Push(token);
    made_ += shown.size();
    if (ends) EndGroup();
    if (!is_special) {
      if (!last_is_open_) pending_.emplace_back();
      tokens_.push_back(token);
      pending_.back() = {.tokens_end = tokens_.size(), .end = made_};
      last_is_open_ = detokenizer_->holds_back();
    }
    if (answer_) continue;
    const std::string_view name = is_special ? tokenizer_->TokenBytes(token) : "";
    if (name == kThinkBegin || name == kThinkEnd) shown += name;
    FindAnswer(shown);
  }
  Seal();
}

void Output::Close() {
  BATON_CHECK(!closed_, "Close after Close");
  closed_ = true;
  if (tokenizer_ == nullptr) return;
  if (detokenizer_->holds_back()) {
    const std::string shown = detokenizer_->Finish();
    made_ += shown.size();
    EndGroup();
    if (!answer_) FindAnswer(shown);
  }
  // The output ends before it is clear that it begins with a thought.
  if (!answer_ && !thoughts_->Finish().content.empty()) answer_ = Start();
  Seal();
  pending_.clear();
  const auto rest = tokenizer_->Encode(std::string_view(text_).substr(sealed_end_), Tokenizer::SpecialTokens::kAsText);
  tokens_.resize(sealed_);
  tokens_.insert(tokens_.end(), rest.begin(), rest.end());
  sealed_ = tokens_.size();
  sealed_end_ = text_.size();
}

// Notes where the answer begins, once the text up to made_ shows it. `text` is the last part of
// that text, with the tags that are special tokens.
void Output::FindAnswer(std::string_view text) {
  read_ += text.size();
  const std::string answer = thoughts_->Push(text).content;
  if (!thoughts_->answers()) return;
  // Without thoughts the answer is the whole output.
  const bool is_all = answer.size() == read_;
  answer_ = is_all ? Start()
                   : Start{.token = tokens_.size(),
                           .text = made_ - answer.size(),
                           .splits_token = !answer.empty() || detokenizer_->holds_back()};
}

// Ends the text of an incomplete character.
void Output::EndGroup() {
  if (!last_is_open_) pending_.push_back({.tokens_end = tokens_.size()});
  pending_.back().end = made_;
  last_is_open_ = false;
}

void Output::Seal() {
  while (!pending_.empty() && !(last_is_open_ && pending_.size() == 1) && pending_.front().end <= text_.size()) {
    sealed_ = pending_.front().tokens_end;
    sealed_end_ = pending_.front().end;
    pending_.pop_front();
  }
}

Output::Tokens Output::TokensFor(const Tokenizer& reader, Part part, int64_t most) {
  const bool has_thoughts = !answer_ || answer_->text > 0 || answer_->token > 0;
  if (!has_thoughts) part = Part::kWhole;
  if (part == Part::kAnswer && (!answer_ || answer_->text >= text_.size())) return {};
  const Start start = part == Part::kWhole ? Start() : *answer_;
  if (tokenizer_ != nullptr && reader.digest() == tokenizer_->digest() && !start.splits_token) {
    const auto ids = std::span(tokens_).first(sealed_).subspan(std::min(start.token, sealed_));
    return {ids, std::ssize(ids)};
  }
  const auto [found, is_new] = encoded_.try_emplace({reader.digest(), part});
  if (is_new) found->second.encoded = start.text;
  return Extend(reader, found->second, most);
}

Output::Tokens Output::Extend(const Tokenizer& reader, Encoding& encoding, int64_t most) const {
  const auto so_far = [&] { return Tokens{encoding.ids, std::ssize(encoding.ids)}; };
  if (encoding.complete || (!closed_ && text_.size() < encoding.try_from)) return so_far();
  const std::string_view rest = std::string_view(text_).substr(encoding.encoded);
  const int64_t at_least = std::ssize(encoding.ids) + reader.FewestTokens(rest);
  if (at_least > most) return {encoding.ids, at_least};
  if (closed_) {
    const auto ids = reader.Encode(rest, Tokenizer::SpecialTokens::kAsText);
    encoding.ids.insert(encoding.ids.end(), ids.begin(), ids.end());
    encoding.encoded = text_.size();
    encoding.complete = true;
    return so_far();
  }
  encoding.encoded += reader.EncodeSealed(rest, encoding.ids);
  // A long text without a seal is tried again only once it has grown by a quarter. All attempts
  // together therefore take O(n log n).
  const size_t held = text_.size() - encoding.encoded;
  encoding.try_from = text_.size() + std::max<size_t>(1, held / 4);
  return so_far();
}

int64_t Output::bytes() const {
  size_t bytes = sizeof(*this) + text_.capacity() + tokens_.capacity() * sizeof(TokenId);
  for (const auto& [reader, encoding] : encoded_) bytes += encoding.ids.capacity() * sizeof(TokenId);
  return static_cast<int64_t>(bytes);
}

}  // namespace baton
