// A model for tests of routers. Its 256 tokens are the bytes. It has a context length of 64 tokens
// and no chat template.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/served_model.h"

namespace baton {

class ByteTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> Encode(std::string_view text, SpecialTokens) const override {
    bytes_encoded_ += text.size();
    std::vector<TokenId> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  size_t EncodeSealed(std::string_view text, std::vector<TokenId>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return text.size();
  }
  std::span<const TokenId> prompt_prefix() const override { return prefix_; }
  std::string_view TokenBytes(TokenId id) const override { return {&bytes_[static_cast<size_t>(id)], 1}; }
  bool IsSpecial(TokenId) const override { return false; }
  int64_t vocab_size() const override { return 256; }
  int64_t max_bytes_per_token() const override { return 1; }
  const Digest& digest() const override { return digest_; }

  std::vector<TokenId> prefix_;
  mutable size_t bytes_encoded_ = 0;  // so far

 private:
  std::string bytes_ = [] {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
    return bytes;
  }();
  Digest digest_{};
};

inline ServedModel ByteModel(const std::string& name, std::vector<TokenId> prefix = {}) {
  ServedModel model;
  model.name = name;
  model.context = 64;
  model.vocab = 256;
  auto tokenizer = std::make_unique<ByteTokenizer>();
  tokenizer->prefix_ = std::move(prefix);
  model.tokenizer = std::move(tokenizer);
  return model;
}

inline ServedModels OneByteModel() {
  std::vector<ServedModel> models;
  models.push_back(ByteModel("bytes"));
  return ServedModels(std::move(models));
}

}  // namespace baton
