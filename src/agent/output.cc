#include "agent/output.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton {

void Output::Push(std::span<const TokenId> tokens, std::string_view text) {
  BATON_CHECK(!closed_, "Push after Close");
  text_ += text;
  for (const TokenId token : tokens) {
    const bool is_special = tokenizer_.IsSpecial(token), ends = is_special && detokenizer_.holds_back();
    made_ += detokenizer_.Push(token).size();
    if (ends) EndGroup();
    if (is_special) continue;
    if (!last_is_open_) pending_.emplace_back();
    tokens_.push_back(token);
    pending_.back() = {.tokens_end = tokens_.size(), .end = made_};
    last_is_open_ = detokenizer_.holds_back();
  }
  Seal();
}

void Output::Close(absl::Status status) {
  BATON_CHECK(!closed_, "Close after Close");
  closed_ = true;
  status_ = std::move(status);
  if (detokenizer_.holds_back()) {
    made_ += detokenizer_.Finish().size();
    EndGroup();
  }
  Seal();
  pending_.clear();
  const auto rest = tokenizer_.Encode(std::string_view(text_).substr(sealed_end_), Tokenizer::SpecialTokens::kAsText);
  tokens_.resize(sealed_);
  tokens_.insert(tokens_.end(), rest.begin(), rest.end());
  sealed_ = tokens_.size();
  sealed_end_ = text_.size();
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

std::span<const TokenId> Output::TokensFor(const Tokenizer& reader) {
  if (reader.digest() == tokenizer_.digest()) return std::span(tokens_).first(sealed_);
  Encoding& encoding = encoded_[reader.digest()];
  Extend(reader, encoding);
  return encoding.ids;
}

void Output::Extend(const Tokenizer& reader, Encoding& encoding) const {
  if (encoding.complete || (!closed_ && text_.size() < encoding.try_from)) return;
  const std::string_view rest = std::string_view(text_).substr(encoding.encoded);
  if (closed_) {
    const auto ids = reader.Encode(rest, Tokenizer::SpecialTokens::kAsText);
    encoding.ids.insert(encoding.ids.end(), ids.begin(), ids.end());
    encoding.encoded = text_.size();
    encoding.complete = true;
    return;
  }
  encoding.encoded += reader.EncodeSealed(rest, encoding.ids);
  // A long text without a seal is tried again only once it has grown by a quarter. All attempts
  // together therefore take O(n log n).
  const size_t held = text_.size() - encoding.encoded;
  encoding.try_from = text_.size() + std::max<size_t>(1, held / 4);
}

int64_t Output::bytes() const {
  size_t bytes = sizeof(*this) + text_.capacity() + tokens_.capacity() * sizeof(TokenId);
  for (const auto& [digest, encoding] : encoded_) bytes += encoding.ids.capacity() * sizeof(TokenId);
  return static_cast<int64_t>(bytes);
}

}  // namespace baton
