// How the next token is chosen from logits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace baton {

struct SamplingParams {
  float temperature = 1;            // [0, 100]; 0: greedy
  int32_t top_k = 0;                // 0: off
  float top_p = 1;                  // (0, 1]
  float min_p = 0;                  // [0, 1)
  float repetition_penalty = 1;     // [0.01, 100]; over prompt and output (Keskar et al. 2019)
  float presence_penalty = 0;       // [-2, 2], over output (OpenAI)
  float frequency_penalty = 0;      // [-2, 2], over output (OpenAI)
  std::optional<uint64_t> seed{};   // same seed, same tokens, whatever else runs
  int32_t max_tokens = 0;           // >= 1
  std::vector<std::string> stop{};  // the output ends before the first of these; <= 64, of 1..1024 bytes of UTF-8
  std::vector<TokenId> stop_ids{};  // beside the end-of-sequence ids of the model; <= 256
  bool ignore_eos = false;
  std::optional<int32_t> logprobs{};  // also the top n of each step, 0..20; unset: none
};

inline constexpr int32_t kMaxTopLogprobs = 20;

struct TokenLogprobs {
  float logprob = 0;  // of the chosen token, natural log, under the raw (unscaled, unpenalised) distribution
  std::vector<std::pair<TokenId, float>> top{};  // most likely first
};

// INVALID_ARGUMENT names the field, its value and the limit.
absl::Status Validate(const SamplingParams& params, int64_t vocab);

}  // namespace baton
