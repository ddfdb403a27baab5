#include "request/token_buffer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton {

TokenBuffer::TokenBuffer(std::vector<TokenId> tokens)
    : storage_(std::make_shared<std::vector<TokenId>>(std::move(tokens))),
      data_(storage_->data()),
      size_(storage_->size()) {}

void TokenBuffer::Append(std::span<const TokenId> tokens) {
  if (tokens.empty()) return;
  const size_t size = size_ + tokens.size();
  const bool has_room = storage_ != nullptr && end() == storage_->data() + storage_->size() &&
                        storage_->size() + tokens.size() <= storage_->capacity();
  if (!has_room) {
    auto grown = std::make_shared<std::vector<TokenId>>();
    grown->reserve(std::max(size, 2 * size_));
    grown->assign(begin(), end());
    data_ = grown->data();
    storage_.swap(grown);
  }
  const size_t before = storage_->size();
  storage_->resize(before + tokens.size());  // within the capacity, so no token moves
  std::ranges::copy(tokens, storage_->begin() + static_cast<std::ptrdiff_t>(before));
  size_ = size;
}

TokenBuffer TokenBuffer::Suffix(size_t begin) const {
  BATON_CHECK(begin <= size_, "the suffix begins after the end of the buffer");
  TokenBuffer suffix = *this;
  suffix.data_ += begin;
  suffix.size_ -= begin;
  return suffix;
}

bool operator==(const TokenBuffer& a, const TokenBuffer& b) { return std::ranges::equal(a, b); }

}  // namespace baton
