#include "text/tokenizer_added.h"

#include <algorithm>

#include "base/check.h"

namespace baton {
namespace {

uint64_t Edge(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<uint8_t>(byte); }

}  // namespace

void AddedTokenFinder::Add(std::string_view content, TokenId id) {
  BATON_CHECK(!content.empty(), "an added token is empty");
  starts_[static_cast<uint8_t>(content[0])] = true;
  uint32_t node = kRoot;
  for (const char byte : content) {
    const auto [child, is_new] = children_.try_emplace(Edge(node, byte), static_cast<uint32_t>(ends_.size()));
    if (is_new) {
      is_leaf_[node] = false;
      ends_.emplace_back();
      is_leaf_.push_back(true);
    }
    node = child->second;
  }
  ends_[node] = id;
}

AddedTokenFinder::Match AddedTokenFinder::LongestAt(std::string_view text) const {
  Match longest;
  uint32_t node = kRoot;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto child = children_.find(Edge(node, text[i]));
    if (child == children_.end()) break;
    node = child->second;
    if (ends_[node].has_value()) longest = {i + 1, *ends_[node]};
    longest.cut_off = i + 1 == text.size() && !is_leaf_[node];
  }
  return longest;
}

void AddedTokenFinder::Split(std::string_view text,
                             absl::FunctionRef<void(std::string_view piece, std::optional<TokenId> id)> piece) const {
  size_t begin = 0;  // start of the text after the last token
  for (size_t at = 0; at < text.size();) {
    const Match match = starts_[static_cast<uint8_t>(text[at])] ? LongestAt(text.substr(at)) : Match{};
    if (match.size == 0) {
      ++at;
      continue;
    }
    if (begin < at) piece(text.substr(begin, at - begin), std::nullopt);
    piece(text.substr(at, match.size), match.id);
    at += match.size;
    begin = at;
  }
  if (begin < text.size()) piece(text.substr(begin), std::nullopt);
}

size_t AddedTokenFinder::Decided(std::string_view text) const {
  size_t at = 0;
  while (at < text.size()) {
    const Match match = starts_[static_cast<uint8_t>(text[at])] ? LongestAt(text.substr(at)) : Match{};
    if (match.cut_off) break;
    at += std::max<size_t>(match.size, 1);
  }
  return at;
}

}  // namespace baton
