#include "frontend/openai/logprobs_writer.h"

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

// Appends "token", "logprob" and "bytes" of a chat.
void AppendToken(std::string& out, std::string_view bytes, float logprob) {
  out += "\"token\":";
  AppendJsonString(out, bytes);
  out += ",\"logprob\":";
  AppendLogprob(out, logprob);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    absl::StrAppend(&out, int{static_cast<unsigned char>(bytes[i])});
  }
  out += ']';
}

}  // namespace

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
  AppendToken(content_, tokenizer_.TokenBytes(id), logprobs.logprob);
  content_ += ",\"top_logprobs\":[";
  for (size_t i = 0; i < logprobs.top.size(); ++i) {
    content_ += i > 0 ? ",{" : "{";
    AppendToken(content_, tokenizer_.TokenBytes(logprobs.top[i].first), logprobs.top[i].second);
    content_ += '}';
  }
  content_ += "]}";
}

void LogprobsWriter::AddForCompletion(TokenId id, const TokenLogprobs& logprobs) {
  if (count_ > 0) {
    for (std::string* list : {&tokens_, &token_logprobs_, &tops_, &offsets_}) *list += ',';
  }
  const std::string name = TokenName(tokenizer_.TokenBytes(id));
  AppendJsonString(tokens_, name);
  AppendLogprob(token_logprobs_, logprobs.logprob);
  absl::StrAppend(&offsets_, offset_ + (shown_.Breaks(id) ? 1 : 0));
  offset_ += CountCharacters(shown_.Push(id));

  // The chosen token is one of the tops, as in OpenAI's API. Tokens with equal text become one
  // member: the chosen token, or else the likeliest.
  std::vector<std::pair<std::string, float>> tops = {{name, logprobs.logprob}};
  for (const auto& [top, logprob] : logprobs.top) {
    std::string top_name = TokenName(tokenizer_.TokenBytes(top));
    bool known = false;
    for (const auto& earlier : tops) known = known || earlier.first == top_name;
    if (!known) tops.emplace_back(std::move(top_name), logprob);
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
