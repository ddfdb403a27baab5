// A finder of added tokens in text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "base/ids.h"

namespace baton {

// It uses a trie of the tokens' bytes.
class AddedTokenFinder {
 public:
  // Adds a token. The search takes O(text * longest content) time, so contents should be short.
  // REQUIRES: `content` is not empty.
  void Add(std::string_view content, TokenId id);

  // Splits `text` at the added tokens, from left to right. Calls piece(content, id) for each token
  // and piece(text, nullopt) for each text between tokens, unless it is empty. If several tokens
  // start at the same byte, the longest counts.
  void Split(std::string_view text,
             absl::FunctionRef<void(std::string_view piece, std::optional<TokenId> id)> piece) const;

  // Returns the length of the prefix of `text` that Split treats in the same way for any later
  // text. No token that starts in this prefix may continue beyond `text`.
  size_t Decided(std::string_view text) const;

 private:
  static constexpr uint32_t kRoot = 0;
  struct Match {
    size_t size = 0;
    TokenId id = 0;
    bool cut_off = false;  // more text may complete a longer token
  };
  Match LongestAt(std::string_view text) const;

  std::array<bool, 256> starts_{};                          // true if a token begins with the byte
  absl::flat_hash_map<uint64_t, uint32_t> children_;        // by node << 8 | byte
  std::vector<std::optional<TokenId>> ends_{std::nullopt};  // by node
  std::vector<bool> is_leaf_{true};                         // by node
};

}  // namespace baton
