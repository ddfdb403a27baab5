#include "model/token_constraints.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace baton {
namespace {

// As in vLLM, a word is excluded at the start of a text and after a space. Unlike vLLM, the form
// after a space is excluded also if it has another number of tokens.
std::vector<std::vector<TokenId>> BadWordTokens(const std::vector<std::string>& words, const Tokenizer& tokenizer) {
  std::vector<std::vector<TokenId>> sequences;
  for (const std::string& word : words) {
    // A text of spaces keeps one of them.
    const size_t begin = std::min(word.find_first_not_of(' '), word.size() - 1);
    const std::string text = word.substr(begin);
    for (const std::string& form : {text, " " + text}) {
      std::vector<TokenId> ids = tokenizer.Encode(form, Tokenizer::SpecialTokens::kParse);
      if (!ids.empty()) sequences.push_back(std::move(ids));
    }
  }
  return sequences;
}

std::optional<TokenId> OneToken(std::string_view text, const Tokenizer& tokenizer) {
  const std::vector<TokenId> ids = tokenizer.Encode(text, Tokenizer::SpecialTokens::kParse);
  return ids.size() == 1 ? std::optional(ids[0]) : std::nullopt;
}

bool IsSpace(std::string_view bytes) { return bytes.find_first_not_of(" \t\r\n") == bytes.npos; }

// Templates may put white space after the mark.
bool EndsWithMark(std::span<const TokenId> prompt, TokenId mark, const Tokenizer& tokenizer) {
  while (!prompt.empty() && prompt.back() != mark && IsSpace(tokenizer.TokenBytes(prompt.back()))) {
    prompt = prompt.first(prompt.size() - 1);
  }
  return !prompt.empty() && prompt.back() == mark;
}

bool EndsWith(std::span<const TokenId> output, std::span<const TokenId> end) {
  return output.size() >= end.size() && std::ranges::equal(output.last(end.size()), end);
}

}  // namespace

TokenRules RulesOf(const SamplingParams& params, const Tokenizer& tokenizer, std::span<const TokenId> eos_ids,
                   std::span<const TokenId> prompt) {
  TokenRules rules;
  rules.ends.assign(eos_ids.begin(), eos_ids.end());
  rules.bad_words = BadWordTokens(params.bad_words, tokenizer);
  if (!params.thinking_token_budget) return rules;
  const auto begin = OneToken("<think>", tokenizer), end = OneToken("</think>", tokenizer);
  if (!begin || !end) return rules;
  rules.thinking.emplace(ThinkingMarks{*begin, *end}, EndsWithMark(prompt, *begin, tokenizer),
                         *params.thinking_token_budget);
  return rules;
}

TokenConstraints::TokenConstraints(const SamplingParams& params, TokenRules rules)
    : biases_(params.logit_bias),
      allowed_(params.allowed_token_ids),
      min_tokens_(params.min_tokens),
      ends_(std::move(rules.ends)),
      thinking_(rules.thinking) {
  ends_.insert(ends_.end(), params.stop_ids.begin(), params.stop_ids.end());
  for (std::vector<TokenId>& word : rules.bad_words) {
    if (word.size() == 1) {
      bad_tokens_.push_back(word[0]);
    } else {
      bad_sequences_.push_back(std::move(word));
    }
  }
  late_ = Combine({});
  if (min_tokens_ > 0) early_ = Combine(ends_);
  if (thinking_) forced_ = {.id = thinking_->end_mark(), .bias = 0};
}

// Returns the constraints of a token for which `excluded` are excluded too.
std::vector<TokenBias> TokenConstraints::Combine(std::span<const TokenId> excluded) const {
  std::set<TokenId> out(bad_tokens_.begin(), bad_tokens_.end());
  out.insert(excluded.begin(), excluded.end());
  std::map<TokenId, float> biases;
  for (const TokenId id : allowed_) biases[id] = 0;
  for (const auto& [id, bias] : biases_) {
    if (allowed_.empty() || biases.contains(id)) biases[id] = bias;
  }
  for (const TokenId id : out) {
    if (allowed_.empty()) {
      biases[id] = kExcluded;
    } else {
      biases.erase(id);
    }
  }
  std::vector<TokenBias> combined;
  for (const auto& [id, bias] : biases) combined.push_back({id, bias});
  return combined;
}

TokenBiases TokenConstraints::At(int64_t ahead) const {
  if (thinking_ && ahead == 0 && thinking_->forces()) return {.list = {&forced_, 1}, .only = true};
  const bool only = !allowed_.empty();
  if (next_ && ahead == 0) return {.list = *next_, .only = only};
  return {.list = made_ + ahead < min_tokens_ ? early_ : late_, .only = only};
}

bool TokenConstraints::IsSettled(int64_t ahead) const {
  if (ahead == 0) return true;
  if (thinking_ && !thinking_->IsFree(ahead)) return false;
  // A sequence may be complete there if the output ends with all of its tokens up to the unknown
  // ones.
  return std::ranges::none_of(bad_sequences_, [&](const std::vector<TokenId>& sequence) {
    const int64_t made = std::ssize(sequence) - 1 - ahead;
    return EndsWith(output_, std::span(sequence).first(static_cast<size_t>(std::max<int64_t>(made, 0))));
  });
}

// Returns the tokens that would complete a sequence.
std::vector<TokenId> TokenConstraints::BadNext() const {
  std::vector<TokenId> ids;
  for (const std::vector<TokenId>& sequence : bad_sequences_) {
    if (EndsWith(output_, std::span(sequence).first(sequence.size() - 1))) ids.push_back(sequence.back());
  }
  return ids;
}

void TokenConstraints::Accept(TokenId id) {
  ++made_;
  if (thinking_) thinking_->Accept(id);
  if (bad_sequences_.empty()) return;
  output_.push_back(id);
  std::vector<TokenId> excluded = BadNext();
  next_.reset();
  if (excluded.empty()) return;
  if (made_ < min_tokens_) excluded.insert(excluded.end(), ends_.begin(), ends_.end());
  next_ = Combine(excluded);
}

}  // namespace baton
