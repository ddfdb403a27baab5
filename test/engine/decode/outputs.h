// The expected outputs of decoded requests.
#pragma once

#include <cmath>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "text/detokenizer.h"
#include "world/decode_world.h"

namespace baton {

inline std::vector<TokenId> RandomPrompt(std::mt19937& rng, size_t length) {
  std::uniform_int_distribution<TokenId> token(0, FakeBackend::kVocab - 1);
  std::vector<TokenId> prompt(length);
  for (TokenId& t : prompt) t = token(rng);
  return prompt;
}

// Returns the text of `tokens` that follow the tokens `before`.
inline std::string TextOf(std::span<const TokenId> tokens, std::span<const TokenId> before = {}) {
  Detokenizer detokenizer(TestTokenizer());
  detokenizer.BeginAfter(before);
  std::string text;
  for (const TokenId id : tokens) text += detokenizer.Push(id);
  return text + detokenizer.Finish();
}

// Returns the output of the job in a worker of its own.
inline Output RunAlone(DecodeJob job) {
  DecodeWorld world(TestOptions(64));
  const RequestId id = job.request_id;
  world.StartJob(std::move(job));
  world.RunAll();
  return world.outputs.at(id);
}

// CHECKs that the outputs are equal. If the backend samples, log probabilities may be rounded
// differently.
inline void CheckSame(const Output& got, const Output& expected, bool backend_samples) {
  CHECK(got.tokens == expected.tokens);
  CHECK(got.text == expected.text);
  CHECK(got.finish == expected.finish);
  CHECK(got.failure == expected.failure);
  REQUIRE(got.logprobs.size() == expected.logprobs.size());
  for (size_t i = 0; i < got.logprobs.size(); ++i) {
    const float difference = got.logprobs[i].logprob - expected.logprobs[i].logprob;
    CHECK(std::abs(difference) <= (backend_samples ? 1e-5f : 0.0f));
    CHECK(got.logprobs[i].top == expected.logprobs[i].top);
  }
}

}  // namespace baton
