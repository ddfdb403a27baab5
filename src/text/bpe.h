// Byte pair encoding of one pre-token (Sennrich et al. 2016), over bytes (Radford et al. 2019).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "text/tokenizer_spec.h"

namespace baton {

class Bpe {
 public:
  // REQUIRES: every id in the spec's merges has a token. The spec must outlive this.
  explicit Bpe(const TokenizerSpec& spec);

  // Appends the tokens of `word`: of all neighbours that some rule merges, those of the first rule are merged first,
  // the leftmost first among equals. O(n log n). Thread-safe.
  void Encode(std::string_view word, std::vector<TokenId>& out) const;
  // Whether every byte becomes part of some token.
  bool KeepsAllBytes() const;

 private:
  static constexpr TokenId kNoToken = -1;
  static constexpr uint32_t kNoRule = UINT32_MAX;

  struct Rule {
    uint32_t rank = kNoRule;  // the position in the list of merges
    TokenId merged = kNoToken;
  };

  Rule FindRule(TokenId left, TokenId right) const;
  std::vector<TokenId> Bytes(std::string_view word) const;
  void MergeShort(std::string_view word, std::vector<TokenId>& out) const;
  void MergeLong(std::string_view word, std::vector<TokenId>& out) const;
  void Merge(std::string_view word, std::vector<TokenId>& out) const;
  bool MergesToItself(TokenId id, std::string_view word) const;

  const bool ignore_merges_;
  std::array<TokenId, 256> byte_token_;
  absl::flat_hash_map<uint64_t, Rule> rules_;             // by left << 32 | right
  absl::flat_hash_map<std::string_view, TokenId> whole_;  // tokens that a whole pre-token may be, by their bytes

  // Whether the merges make a token of its own bytes: found out when first asked, the same whoever asks. So most words
  // cost one look-up.
  enum class Reachable : uint8_t { kUnknown, kNo, kYes };
  std::unique_ptr<std::atomic<Reachable>[]> reachable_;  // by id
};

}  // namespace baton
