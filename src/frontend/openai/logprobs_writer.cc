#include "frontend/openai/logprobs_writer.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "base/strings.h"
#include "frontend/openai/json_text.h"
#include "frontend/openai/token_text.h"
#include "text/utf8.h"

namespace baton {
namespace {

// Returns the name of a token of a completion. Completions have no field for the bytes of an
// incomplete character, so the name shows the bytes, as in OpenAI's API.
std::string TokenName(std::string_view bytes) {
  if (ValidUtf8Prefix(bytes) == bytes.size()) return std::string(bytes);
  std::string name = "bytes:";
  for (const char byte : bytes) name += StrCat("\\x", absl::BytesToHexString(absl::string_view(&byte, 1)));
  return name;
}

// Appends a member of an object of vLLM's prompt_logprobs.
void AppendRanked(std::string& out, TokenId id, float logprob, int64_t rank, const Tokenizer& tokenizer) {
  absl::StrAppend(&out, out.back() == '{' ? "" : ",", "\"", id, "\":{\"logprob\":");
  AppendLogprob(out, logprob);
  absl::StrAppend(&out, ",\"rank\":", rank, ",\"decoded_token\":");
  AppendJsonString(out, tokenizer.TokenBytes(id));
  out += '}';
}

}  // namespace

std::string LogprobsWriter::NameOf(TokenId id) const {
  if (as_ids_) return StrCat("token_id:", id);
  const std::string_view bytes = tokenizer_.TokenBytes(id);
  return chat_ ? std::string(bytes) : TokenName(bytes);
}

void LogprobsWriter::AppendToken(std::string& out, TokenId id, float logprob) const {
  const std::string_view bytes = tokenizer_.TokenBytes(id);
  out += "\"token\":";
  AppendJsonString(out, NameOf(id));
  out += ",\"logprob\":";
  AppendLogprob(out, logprob);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    absl::StrAppend(&out, int{static_cast<unsigned char>(bytes[i])});
  }
  out += ']';
}

std::string PromptLogprobsJson(const PromptLogprobs& prompt, size_t top, const Tokenizer& tokenizer) {
  std::string out = "[null";
  for (size_t i = 0; i < prompt.logprobs.size(); ++i) {
    const TokenLogprobs& logprobs = prompt.logprobs[i];
    const TokenId own = prompt.tokens[i + 1];
    out += ",{";
    AppendRanked(out, own, logprobs.logprob, logprobs.rank, tokenizer);
    for (size_t k = 0; k < std::min(top, logprobs.top.size()); ++k) {
      const auto& [id, logprob] = logprobs.top[k];
      if (id != own) AppendRanked(out, id, logprob, static_cast<int64_t>(k) + 1, tokenizer);
    }
    out += '}';
  }
  out += ']';
  return out;
}

void LogprobsWriter::Add(const TokenUpdate& update) {
  BATON_CHECK(update.logprobs.size() == update.tokens.size(), "each token needs its log probability");
  if (!update.before.empty()) shown_.BeginAfter(update.before);
  for (size_t i = 0; i < update.tokens.size(); ++i) {
    if (chat_) {
      AddForChat(update.tokens[i], update.logprobs[i]);
    } else {
      AddForCompletion(update.tokens[i], update.logprobs[i]);
    }
    ++count_;
  }
}

void LogprobsWriter::AddForChat(TokenId id, const TokenLogprobs& logprobs) {
  content_ += count_ > 0 ? ",{" : "{";
  AppendToken(content_, id, logprobs.logprob);
  content_ += ",\"top_logprobs\":[";
  for (size_t i = 0; i < logprobs.top.size(); ++i) {
    content_ += i > 0 ? ",{" : "{";
    AppendToken(content_, logprobs.top[i].first, logprobs.top[i].second);
    content_ += '}';
  }
  content_ += "]}";
}

void LogprobsWriter::AddForCompletion(TokenId id, const TokenLogprobs& logprobs) {
  BeginElement(id, offset_ + (shown_.Breaks(id) ? 1 : 0));
  AddLogprobs(id, logprobs, logprobs.top.size());
  offset_ += CountCharacters(shown_.Push(id));
}

void LogprobsWriter::AddPrompt(const PromptLogprobs& prompt, std::string_view echo, size_t top) {
  Detokenizer shown(tokenizer_);
  int64_t offset = 0;
  // The tokenizer's prefix is not part of a text, but of a prompt that consists of token ids.
  const std::span<const TokenId> prefix = tokenizer_.prompt_prefix();
  std::string name_of_prefix;
  for (const TokenId id : prefix) name_of_prefix += tokenizer_.TokenBytes(id);
  const size_t hidden = echo.starts_with(name_of_prefix) ? 0 : prefix.size();
  for (size_t i = 0; i < prompt.tokens.size(); ++i, ++count_) {
    const TokenId id = prompt.tokens[i];
    BeginElement(id, offset + (shown.Breaks(id) ? 1 : 0));
    offset += CountCharacters(shown.Push(id));
    // An echo shows the names of special tokens.
    if (i >= hidden && tokenizer_.IsSpecial(id)) offset += CountCharacters(tokenizer_.TokenBytes(id));
    if (i > 0) {
      AddLogprobs(id, prompt.logprobs[i - 1], top);
    } else {
      token_logprobs_ += "null";
      tops_ += "null";
    }
  }
}

void LogprobsWriter::BeginElement(TokenId id, int64_t offset) {
  if (!tokens_.empty()) {
    for (std::string* list : {&tokens_, &token_logprobs_, &tops_, &offsets_}) *list += ',';
  }
  AppendJsonString(tokens_, NameOf(id));
  absl::StrAppend(&offsets_, offset);
}

// The chosen token is one of the tops, as in OpenAI's API. Tokens with equal text become one
// member: the chosen token, or else the likeliest.
void LogprobsWriter::AddLogprobs(TokenId id, const TokenLogprobs& logprobs, size_t top) {
  AppendLogprob(token_logprobs_, logprobs.logprob);
  std::vector<std::pair<std::string, float>> tops = {{NameOf(id), logprobs.logprob}};
  for (const auto& [likely, logprob] : std::span(logprobs.top).first(std::min(top, logprobs.top.size()))) {
    std::string name = NameOf(likely);
    bool known = false;
    for (const auto& earlier : tops) known = known || earlier.first == name;
    if (!known) tops.emplace_back(std::move(name), logprob);
  }
  tops_ += '{';
  for (size_t i = 0; i < tops.size(); ++i) {
    if (i > 0) tops_ += ',';
    AppendJsonString(tops_, tops[i].first);
    tops_ += ':';
    AppendLogprob(tops_, tops[i].second);
  }
  tops_ += '}';
}

std::string LogprobsWriter::Take() {
  if (count_ == 0) return "null";
  count_ = 0;
  if (chat_) return StrCat("{\"content\":[", std::exchange(content_, ""), "],\"refusal\":null}");
  return StrCat("{\"tokens\":[", std::exchange(tokens_, ""), "],\"token_logprobs\":[",
                std::exchange(token_logprobs_, ""), "],\"top_logprobs\":[", std::exchange(tops_, ""),
                "],\"text_offset\":[", std::exchange(offsets_, ""), "]}");
}

}  // namespace baton
