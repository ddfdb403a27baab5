// Models for tests of the OpenAI API. The tokenizer has one token for each byte, and special
// tokens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/served_model.h"

namespace baton {

class MarkedTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kPythonTag = 256, kEnd = 257, kThink = 258, kThought = 259, kVocab = 260;

  std::vector<TokenId> Encode(std::string_view text, SpecialTokens special) const override {
    for (TokenId id = kPythonTag; special == SpecialTokens::kParse && id < kVocab; ++id) {
      if (text == TokenBytes(id)) return {id};
    }
    std::vector<TokenId> ids;
    EncodeSealed(text, ids);
    return ids;
  }
  size_t EncodeSealed(std::string_view text, std::vector<TokenId>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return text.size();
  }
  std::span<const TokenId> prompt_prefix() const override { return prefix_; }
  std::string_view TokenBytes(TokenId id) const override { return tokens_[static_cast<size_t>(id)]; }
  bool IsSpecial(TokenId id) const override { return id >= kPythonTag; }
  int64_t vocab_size() const override { return kVocab; }
  int64_t max_bytes_per_token() const override { return 1; }
  const Digest& digest() const override { return digest_; }

 private:
  static std::vector<std::string> AllTokens() {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    tokens.insert(tokens.end(), {"<|python_tag|>", "<|eot_id|>", "<think>", "</think>"});
    return tokens;
  }

  const std::vector<std::string> tokens_ = AllTokens();
  const std::vector<TokenId> prefix_ = {kEnd};
  const Digest digest_{};
};

inline ServedModel MarkedModel(const std::string& name, const char* chat_template) {
  ServedModel model;
  model.name = name;
  model.context = 1000;
  model.vocab = MarkedTokenizer::kVocab;
  model.tokenizer = std::make_shared<MarkedTokenizer>();
  model.chat_template = *ChatTemplate::Parse(chat_template, "", "");
  return model;
}

inline constexpr char kPlainTemplate[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
inline constexpr char kQwenTemplate[] =
    "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}"
    "{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}";
inline constexpr char kLlamaTemplate[] = "{% if tools %}{{ tools | tojson }}<|python_tag|>{% endif %}";
inline constexpr char kThinkTemplate[] =
    "{{ messages[0].content }}<a>{% if thinking is false %}<think></think>{% endif %}";
inline constexpr char kOtherTemplate[] = "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}";

// The model "plain" without the tokens 200 and 259, which stand for rows of the vocabulary that
// have no token.
inline ServedModels ModelWithUnnamedIds() {
  std::vector<ServedModel> list;
  list.push_back(MarkedModel("plain", kPlainTemplate));
  list[0].unnamed = {200, 259};
  return ServedModels(std::move(list));
}

// The models "plain", "qwen", "llama", "think" and "other".
inline const ServedModels& TestModels() {
  static const ServedModels* models = [] {
    std::vector<ServedModel> list;
    list.push_back(MarkedModel("plain", kPlainTemplate));
    list.push_back(MarkedModel("qwen", kQwenTemplate));
    list.push_back(MarkedModel("llama", kLlamaTemplate));
    list.push_back(MarkedModel("think", kThinkTemplate));
    list.push_back(MarkedModel("other", kOtherTemplate));
    return new ServedModels(std::move(list));
  }();
  return *models;
}

}  // namespace baton
