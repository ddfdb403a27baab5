// Byte-level BPE as tokenizer.json of a Hugging Face directory describes it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/sha256.h"

namespace baton {

class Tokenizer {
 public:
  // Reads tokenizer.json and tokenizer_config.json. A model, normalizer or pre-tokenizer that we do not implement is
  // refused by name.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& directory);
  virtual ~Tokenizer() = default;

  enum class SpecialTokens { kParse, kAsText };
  // Any bytes are accepted; time is linear in text.size(). Thread-safe. Adds no begin-of-sequence token.
  virtual std::vector<TokenId> Encode(std::string_view text, SpecialTokens special) const = 0;
  // Encodes, as text, the front of a text that may go on, as far as nothing that follows can change its ids; returns
  // the bytes of it. With n of them, Encode(text + more) = ids + Encode(text.substr(n) + more). What is held back is
  // mostly the last word; where text is not in NFC, or a pattern looks behind, it may be all. REQUIRES: valid UTF-8.
  virtual size_t EncodeSealed(std::string_view text, std::vector<TokenId>& ids) const = 0;
  // What the post-processor puts before a prompt's first segment (Llama 3: <|begin_of_text|>), often empty.
  virtual std::span<const TokenId> prompt_prefix() const = 0;

  // The raw bytes of one token, perhaps part of a UTF-8 character; empty for an id outside the vocabulary.
  virtual std::string_view TokenBytes(TokenId id) const = 0;
  virtual bool IsSpecial(TokenId id) const = 0;
  virtual int64_t vocab_size() const = 0;  // largest id + 1
  // Text of n bytes becomes at least n / this tokens. The largest value: no such bound, since bytes may be dropped.
  virtual int64_t max_bytes_per_token() const = 0;
  // Equal digests: token ids may pass from one model to the other without a round trip through text.
  virtual const Digest& digest() const = 0;
};

}  // namespace baton
