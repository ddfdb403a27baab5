#include "text/tokenizer_spec.h"

#include <openssl/evp.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/check.h"

namespace baton {
namespace {

class SpecHash {
 public:
  SpecHash() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    BATON_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "OpenSSL has no SHA-256");
  }

  void Number(uint64_t value) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
    Update(bytes, sizeof(bytes));
  }
  // Hashes the length first, so that a byte cannot move from one string to its neighbour.
  void String(std::string_view text) {
    Number(text.size());
    Update(text.data(), text.size());
  }

  Digest Finish() {
    Digest digest;
    BATON_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1, "SHA-256 failed");
    return digest;
  }

 private:
  void Update(const void* data, size_t size) {
    BATON_CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1, "SHA-256 failed");
  }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

Digest DigestOf(const TokenizerSpec& spec) {
  SpecHash hash;
  hash.String("baton byte-level BPE 1");
  hash.Number(spec.tokens.size());
  for (const std::string& token : spec.tokens) hash.String(token);
  hash.Number(spec.merges.size());
  for (const MergeRule& merge : spec.merges) {
    for (const TokenId id : {merge.left, merge.right, merge.merged}) hash.Number(id);
  }
  hash.Number(spec.ignore_merges);
  hash.Number(spec.unknown.has_value() ? *spec.unknown + uint64_t{1} : 0);
  hash.Number(spec.added.size());
  for (const AddedToken& token : spec.added) {
    hash.Number(token.id);
    hash.String(token.content);
    hash.Number(token.special);
    hash.Number(token.normalized);
  }
  hash.Number(spec.nfc);
  hash.Number(spec.split.size());
  for (const std::string& pattern : spec.split) hash.String(pattern);
  return hash.Finish();
}

}  // namespace baton
