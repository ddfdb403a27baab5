// The tokenizer of a model: byte-level BPE, as the tokenizer.json of a Hugging Face directory
// defines it.
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
  // Reads tokenizer.json and tokenizer_config.json. Refuses a model, normalizer or pre-tokenizer
  // that Baton does not implement, and names it in the error.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& directory);
  virtual ~Tokenizer() = default;

  enum class SpecialTokens { kParse, kAsText };
  // Returns the tokens of `text`, which may be any bytes. Adds no begin-of-sequence token. The time
  // is linear in text.size(). Thread-safe.
  virtual std::vector<TokenId> Encode(std::string_view text, SpecialTokens special) const = 0;
  // Encodes a prefix of `text` whose ids do not depend on later text. Appends the ids to `ids` and
  // returns the length n of the prefix in bytes. Special tokens are encoded as text.
  //
  // For any text `more`, Encode(text + more) = ids + Encode(text.substr(n) + more). The rest of
  // `text` is usually its last word. If `text` is not in NFC, or if a pattern looks behind, the
  // rest may be all of `text`. REQUIRES: `text` is valid UTF-8.
  virtual size_t EncodeSealed(std::string_view text, std::vector<TokenId>& ids) const = 0;
  // Returns the tokens that the post-processor puts before a prompt's first segment (for Llama 3,
  // <|begin_of_text|>). Often empty.
  virtual std::span<const TokenId> prompt_prefix() const = 0;

  // Returns the raw bytes of one token, which may be a part of a UTF-8 character. Returns an empty
  // view for an id outside the vocabulary.
  virtual std::string_view TokenBytes(TokenId id) const = 0;
  virtual bool IsSpecial(TokenId id) const = 0;
  virtual int64_t vocab_size() const = 0;  // largest id + 1
  // Returns a number m such that text of n bytes becomes at least n / m tokens. If there is no such
  // number because bytes may be dropped, returns the largest int64_t.
  virtual int64_t max_bytes_per_token() const = 0;
  // Returns a lower bound on the tokens of any text that begins with `text`. Takes a small part of
  // the time of Encode. REQUIRES: `text` is valid UTF-8.
  virtual int64_t FewestTokens(std::string_view text) const {
    return static_cast<int64_t>(text.size()) / max_bytes_per_token();
  }
  // Returns a digest of the tokenizer. Models with equal digests may exchange token ids without a
  // round trip through text.
  virtual const Digest& digest() const = 0;
};

}  // namespace baton
