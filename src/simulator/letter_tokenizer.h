// A tokenizer for simulated models. Token i is the i-th character from '0' on, so that text and
// tokens take the same paths as with a real model.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/simulated/simulated_backend.h"
#include "text/tokenizer.h"

namespace baton {

class LetterTokenizer final : public Tokenizer {
 public:
  LetterTokenizer() {
    for (int i = 0; i < SimulatedBackend::kVocab; ++i) letters_[i] = static_cast<char>('0' + i);
  }

  std::vector<TokenId> Encode(std::string_view text, SpecialTokens) const override {
    std::vector<TokenId> ids;
    EncodeSealed(text, ids);
    return ids;
  }
  size_t EncodeSealed(std::string_view text, std::vector<TokenId>& ids) const override {
    for (const char c : text) ids.push_back((c - '0') & (SimulatedBackend::kVocab - 1));
    return text.size();
  }
  std::span<const TokenId> prompt_prefix() const override { return {}; }
  std::string_view TokenBytes(TokenId id) const override {
    return id < 0 || id >= vocab_size() ? std::string_view() : std::string_view(letters_ + id, 1);
  }
  bool IsSpecial(TokenId) const override { return false; }
  int64_t vocab_size() const override { return SimulatedBackend::kVocab; }
  int64_t max_bytes_per_token() const override { return 1; }
  const Digest& digest() const override { return digest_; }

 private:
  static_assert((SimulatedBackend::kVocab & (SimulatedBackend::kVocab - 1)) == 0);
  char letters_[SimulatedBackend::kVocab];
  Digest digest_{};
};

}  // namespace baton
