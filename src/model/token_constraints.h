// Which tokens the output of a request may have next, and with which biases: logit_bias,
// min_tokens, allowed_token_ids, bad_words and thinking_token_budget.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/draw_params.h"
#include "model/sampling_params.h"
#include "model/thinking_limit.h"
#include "text/tokenizer.h"

namespace baton {

// The bias, and then the logit, of a token that may not occur.
inline constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// The meaning of a request's parameters in tokens of its model.
struct TokenRules {
  std::vector<TokenId> ends{};                    // excluded before min_tokens
  std::vector<std::vector<TokenId>> bad_words{};  // sequences that may not occur
  std::optional<ThinkingLimit> thinking{};
};

// Returns the rules of a request. `prompt` decides whether thinking has begun.
TokenRules RulesOf(const SamplingParams& params, const Tokenizer& tokenizer, std::span<const TokenId> eos_ids,
                   std::span<const TokenId> prompt);

// The constraints of one token.
struct TokenBiases {
  std::span<const TokenBias> list{};  // each id once
  bool only = false;                  // all other tokens are excluded
  bool empty() const { return list.empty() && !only; }
};

// The constraints of one output. All parameters together exclude a token if one of them does. A
// forced end of thinking outranks them.
class TokenConstraints {
 public:
  TokenConstraints(const SamplingParams& params, TokenRules rules);

  // Returns the constraints of the token `ahead` positions after the next one. Valid until Accept.
  // REQUIRES: IsSettled(ahead).
  TokenBiases At(int64_t ahead) const;
  // Returns whether At(ahead) is the same whatever the tokens in between are.
  bool IsSettled(int64_t ahead) const;
  // Records the next token of the output.
  void Accept(TokenId id);
  // Returns true if the parameters allow no token at all at the output's start.
  bool AllowNothing() const { return At(0).only && At(0).list.empty(); }

 private:
  std::vector<TokenBias> Combine(std::span<const TokenId> excluded) const;
  std::vector<TokenId> BadNext() const;

  std::vector<TokenBias> biases_;
  std::vector<TokenId> allowed_;  // empty: all
  int64_t min_tokens_;
  std::vector<TokenId> ends_;                        // excluded before min_tokens_
  std::vector<TokenId> bad_tokens_;                  // bad words of one token
  std::vector<std::vector<TokenId>> bad_sequences_;  // longer bad words
  std::optional<ThinkingLimit> thinking_;

  // Constraints that do not depend on the output's tokens.
  std::vector<TokenBias> early_, late_;  // before min_tokens_, and from there on
  int64_t made_ = 0;                     // tokens of the output
  std::vector<TokenId> output_;          // if there are bad_sequences_
  // Constraints of the next token that depend on the output's tokens.
  std::optional<std::vector<TokenBias>> next_;
  TokenBias forced_;
};

}  // namespace baton
