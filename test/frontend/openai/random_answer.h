// Random answers of a model, with the marks of calls and of reasoning.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "frontend/openai/openai_model.h"
#include "request/answers.h"
#include "text/output_text.h"

namespace baton {

inline const std::vector<std::string>& Pieces() {
  static const std::vector<std::string> pieces = {"hello ",
                                                  "é",
                                                  "\n",
                                                  "\"",
                                                  "\\",
                                                  "<tool_call>",
                                                  "</tool_call>",
                                                  "{\"name\": \"f\", \"arguments\": {\"x\": 1}}",
                                                  "{\"name\": \"f\"",
                                                  "{\"name\": \"f\", \"arguments\": {\"x\": \"",
                                                  "{\"name\": \"f\", \"arguments\": {}, ",
                                                  "}}",
                                                  "{\"name\": \"no name\", \"arguments\": null}",
                                                  "<think>",
                                                  "</think>",
                                                  "<|python_tag|>",
                                                  "; ",
                                                  "\x01",
                                                  "𝄞",
                                                  "<|eot_id|>"};
  return pieces;
}

// Stop strings, some of which have names of special tokens.
inline std::vector<std::string> RandomStops(std::mt19937& random) {
  std::vector<std::string> stops;
  while (random() % 2 == 0)
    stops.push_back(Pieces()[random() % Pieces().size()] + Pieces()[random() % Pieces().size()]);
  if (random() % 4 == 0) stops.push_back("<|python_tag|>");
  return stops;
}

// The updates that a decode worker makes of these tokens. Text is held back until characters are
// complete and no stop string is possible, and special tokens have no text.
inline std::vector<TokenUpdate> Updates(const std::vector<TokenId>& tokens, const std::vector<std::string>& stops,
                                        bool logprobs, std::mt19937& random, int32_t min_tokens = 0) {
  static const MarkedTokenizer tokenizer;
  OutputText text(tokenizer, stops, min_tokens);
  std::vector<TokenUpdate> updates;
  for (const TokenId id : tokens) {
    if (updates.empty() || random() % 3 > 0) updates.emplace_back();
    TokenUpdate& update = updates.back();
    update.tokens.push_back(id);
    update.text += text.Push(id);
    if (logprobs) update.logprobs.push_back({.logprob = -0.5f, .top = {{id, -0.5f}, {(id + 1) % 256, -2.0f}}});
    if (text.stopped()) break;
  }
  if (updates.empty() || !text.stopped()) updates.emplace_back();
  updates.back().text += text.Finish();
  updates.back().finish = text.stopped() ? FinishReason::kStop : FinishReason::kLength;
  return updates;
}

inline std::vector<TokenId> RandomTokens(std::mt19937& random) {
  static const MarkedTokenizer tokenizer;
  std::vector<TokenId> tokens;
  for (uint32_t i = random() % 12; i > 0; --i) {
    const std::string& piece = Pieces()[random() % Pieces().size()];
    const auto ids = tokenizer.Encode(piece, Tokenizer::SpecialTokens::kParse);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    // Not UTF-8.
    if (random() % 8 == 0) tokens.push_back(0x80 + static_cast<TokenId>(random() % 128));
  }
  return tokens;
}

}  // namespace baton
