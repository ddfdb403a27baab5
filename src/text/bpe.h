// Byte pair encoding (Sennrich et al. 2016) of one pre-token, over bytes (Radford et al. 2019).
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

  // Appends the tokens of `word` to `out`. Among the neighbours that some rule merges, those of the
  // earliest rule merge first, and among equals the leftmost. Takes O(n log n) time. Thread-safe.
  void Encode(std::string_view word, std::vector<TokenId>& out) const;
  // Returns whether the byte becomes a token of its own, before merges.
  bool HasByte(uint8_t byte) const;
  // Returns true if every byte becomes a part of some token.
  bool KeepsAllBytes() const;

 private:
  static constexpr TokenId kNoToken = -1;
  static constexpr uint32_t kNoRule = UINT32_MAX;

  struct Rule {
    uint32_t rank = kNoRule;  // the merge index: the position in the list of merges
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
  std::array<bool, 256> has_byte_{};           // whether byte_token_ is the byte itself
  absl::flat_hash_map<uint64_t, Rule> rules_;  // by left << 32 | right
  // The tokens that may equal a whole pre-token, by their bytes.
  absl::flat_hash_map<std::string_view, TokenId> whole_;

  // The answer to the question whether the merges turn the bytes of a token into this one token. It
  // is computed at first use and does not depend on the caller. Most words thus cost one look-up.
  enum class Reachable : uint8_t { kUnknown, kNo, kYes };
  std::unique_ptr<std::atomic<Reachable>[]> reachable_;  // by id
};

}  // namespace baton
