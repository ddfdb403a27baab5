#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/status.h"
#include "text/bpe.h"
#include "text/nfc.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_added.h"
#include "text/tokenizer_reader.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"

namespace baton {
namespace {

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(TokenizerSpec spec, PreTokenizer pre_tokenizer)
      : spec_(std::move(spec)),
        digest_(DigestOf(spec_)),
        pre_tokenizer_(std::move(pre_tokenizer)),
        bpe_(spec_),
        special_(spec_.tokens.size()) {
    size_t longest = 1;
    std::array<size_t, 256> longest_with{};  // by byte
    const auto measure = [&](std::string_view token) {
      longest = std::max(longest, token.size());
      for (const char byte : token) {
        size_t& with = longest_with[static_cast<uint8_t>(byte)];
        with = std::max(with, token.size());
      }
    };
    for (const std::string& token : spec_.tokens) measure(token);
    std::string storage;
    for (const AddedToken& token : spec_.added) {
      special_[token.id] = token.special;
      const std::string_view content =
          token.normalized && spec_.nfc ? ToNfc(token.content, storage) : std::string_view(token.content);
      measure(content);
      for (AddedTokens* tokens : {&all_added_, &text_added_}) {
        if (token.special && tokens == &text_added_) continue;
        (token.normalized ? tokens->in_normalized : tokens->in_raw).Add(content, token.id);
      }
    }
    for (size_t byte = 0; byte < fewest_.size(); ++byte) {
      const bool is_token = bpe_.HasByte(static_cast<uint8_t>(byte));
      if (is_token && longest_with[byte] > 0) fewest_[byte] = kWholeToken / longest_with[byte];
    }
    if (bpe_.KeepsAllBytes()) max_bytes_per_token_ = static_cast<int64_t>(longest) * (spec_.nfc ? kMostNfcShrinks : 1);
  }

  std::vector<TokenId> Encode(std::string_view text, SpecialTokens special) const override {
    const AddedTokens& added = special == SpecialTokens::kParse ? all_added_ : text_added_;
    std::vector<TokenId> ids;
    added.in_raw.Split(text, [&](std::string_view piece, std::optional<TokenId> id) {
      if (id.has_value()) {
        ids.push_back(*id);
      } else {
        EncodeBytes(piece, added, ids);
      }
    });
    return ids;
  }

  size_t EncodeSealed(std::string_view text, std::vector<TokenId>& ids) const override {
    const auto in_normalized = [&](std::string_view part) {
      return Sealed(text_added_.in_normalized, part, ids, [&](std::string_view piece) {
        return pre_tokenizer_.SplitSealed(piece, [&](std::string_view word) { bpe_.Encode(word, ids); });
      });
    };
    return Sealed(text_added_.in_raw, text, ids, [&](std::string_view piece) {
      if (!spec_.nfc) return in_normalized(piece);
      piece = piece.substr(0, NfcDecided(piece));
      std::string storage;
      // The caller needs lengths in the raw text, so text that normalisation changes is not sealed.
      return ToNfc(piece, storage) == piece ? in_normalized(piece) : 0;
    });
  }

  std::span<const TokenId> prompt_prefix() const override { return spec_.prompt_prefix; }
  std::string_view TokenBytes(TokenId id) const override { return Has(id) ? spec_.tokens[id] : std::string_view(); }
  bool IsSpecial(TokenId id) const override { return Has(id) && special_[id]; }
  int64_t vocab_size() const override { return static_cast<int64_t>(spec_.tokens.size()); }
  int64_t max_bytes_per_token() const override { return max_bytes_per_token_; }
  // Each byte of a token of n bytes counts as at most 1 / n token.
  int64_t FewestTokens(std::string_view text) const override {
    uint64_t fewest = 0;
    const auto add = [&](std::string_view bytes) {
      for (const char byte : bytes) fewest += fewest_[static_cast<uint8_t>(byte)];
    };
    if (!spec_.nfc) {
      add(text);
    } else {
      text_added_.in_raw.Split(text, [&](std::string_view piece, std::optional<TokenId> id) {
        std::string storage;
        add(id.has_value() ? piece : ToNfc(piece.substr(0, NfcDecided(piece)), storage));
      });
    }
    return static_cast<int64_t>(fewest / kWholeToken);
  }
  const Digest& digest() const override { return digest_; }

 private:
  struct AddedTokens {
    AddedTokenFinder in_raw, in_normalized;
  };
  // A token, in the unit of fewest_.
  static constexpr uint64_t kWholeToken = uint64_t{1} << 32;

  // Encodes the pieces of the prefix of `text` in which later text cannot change the added tokens.
  // Returns the length of the sealed part. All pieces are final except the last. If the last piece
  // is not an added token, `encode_last` encodes it and returns the length of its sealed part.
  size_t Sealed(const AddedTokenFinder& added, std::string_view text, std::vector<TokenId>& ids,
                absl::FunctionRef<size_t(std::string_view piece)> encode_last) const {
    std::vector<std::pair<std::string_view, std::optional<TokenId>>> pieces;
    added.Split(text.substr(0, added.Decided(text)),
                [&](std::string_view piece, std::optional<TokenId> id) { pieces.emplace_back(piece, id); });
    size_t sealed = 0;
    for (const auto& [piece, id] : pieces) {
      if (id.has_value()) {
        ids.push_back(*id);
      } else if (&piece == &pieces.back().first) {
        return sealed + encode_last(piece);
      } else if (&added == &text_added_.in_raw) {
        EncodeBytes(piece, text_added_, ids);
      } else {
        pre_tokenizer_.Split(piece, [&](std::string_view word) { bpe_.Encode(word, ids); });
      }
      sealed += piece.size();
    }
    return sealed;
  }

  bool Has(TokenId id) const { return id >= 0 && id < vocab_size(); }

  // Encodes any bytes. Each run of bytes that are not UTF-8 is one pre-token.
  void EncodeBytes(std::string_view bytes, const AddedTokens& added, std::vector<TokenId>& ids) const {
    while (!bytes.empty()) {
      const size_t valid = ValidUtf8Prefix(bytes);
      EncodeText(bytes.substr(0, valid), added, ids);
      bytes.remove_prefix(valid);
      const size_t invalid = InvalidUtf8Prefix(bytes);
      if (invalid > 0) bpe_.Encode(bytes.substr(0, invalid), ids);
      bytes.remove_prefix(invalid);
    }
  }

  void EncodeText(std::string_view text, const AddedTokens& added, std::vector<TokenId>& ids) const {
    std::string storage;
    if (spec_.nfc) text = ToNfc(text, storage);
    added.in_normalized.Split(text, [&](std::string_view piece, std::optional<TokenId> id) {
      if (id.has_value()) {
        ids.push_back(*id);
      } else {
        pre_tokenizer_.Split(piece, [&](std::string_view word) { bpe_.Encode(word, ids); });
      }
    });
  }

  const TokenizerSpec spec_;
  const Digest digest_;
  const PreTokenizer pre_tokenizer_;
  const Bpe bpe_;
  std::vector<bool> special_;  // by id
  AddedTokens all_added_, text_added_;
  int64_t max_bytes_per_token_ = std::numeric_limits<int64_t>::max();
  // By byte: the part that it is of the longest token that contains it. 0: no bound.
  std::array<uint64_t, 256> fewest_{};
};

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadBpe(const std::string& directory) {
  ASSIGN_OR_RETURN(TokenizerSpec spec, ReadTokenizerSpec(directory));
  auto pre_tokenizer = PreTokenizer::Create(spec.split);
  if (!pre_tokenizer.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, "/tokenizer.json: pre_tokenizer: ", pre_tokenizer.status().message()));
  }
  return std::make_unique<BpeTokenizer>(std::move(spec), *std::move(pre_tokenizer));
}

// Shortens the message and replaces its control characters. The message quotes the file, whose
// control characters could forge lines of a log.
absl::Status Printable(const absl::Status& status) {
  constexpr size_t kLongest = 8192;  // bytes
  std::string message(status.message().substr(0, kLongest));
  std::replace_if(message.begin(), message.end(), absl::ascii_iscntrl, '?');
  return absl::Status(status.code(), message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& directory) {
  auto tokenizer = LoadBpe(directory);
  if (!tokenizer.ok()) return Printable(tokenizer.status());
  return tokenizer;
}

}  // namespace baton
