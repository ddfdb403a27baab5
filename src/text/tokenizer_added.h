// Finds added tokens in text.
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

// A trie of the tokens' bytes.
class AddedTokenFinder {
 public:
  // REQUIRES: content is not empty. Time to find is O(text * longest content), so contents are short.
  void Add(std::string_view content, TokenId id);

  // Calls piece(text, nullopt) for what is no added token, piece(text, id) for what is, from left to right, leaving out
  // nothing but empty pieces. Of tokens that start at the same byte the longest is taken.
  void Split(std::string_view text,
             absl::FunctionRef<void(std::string_view piece, std::optional<TokenId> id)> piece) const;

  // How much of the front of `text` Split treats alike whatever follows: no token that starts there is cut off.
  size_t Decided(std::string_view text) const;

 private:
  static constexpr uint32_t kRoot = 0;
  struct Match {
    size_t size = 0;
    TokenId id = 0;
    bool cut_off = false;  // a longer one may come with more text
  };
  Match LongestAt(std::string_view text) const;

  std::array<bool, 256> starts_{};                          // a token begins with this byte
  absl::flat_hash_map<uint64_t, uint32_t> children_;        // by node << 8 | byte
  std::vector<std::optional<TokenId>> ends_{std::nullopt};  // by node
  std::vector<bool> is_leaf_{true};                         // by node
};

}  // namespace baton
