// One request's tokens: the prompt goes in, tokens and text come out. Knows nothing of blocks or batches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model/logits.h"
#include "model/sample_spec.h"
#include "model/sampler.h"
#include "request/answers.h"
#include "request/jobs.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace baton {

// What all requests of a decode worker share.
struct DecodeModel {
  const Tokenizer* tokenizer = nullptr;  // must outlive its streams
  int64_t vocab = 0;
  std::vector<TokenId> eos_ids;
  int64_t positions = 0;  // a sequence's KV is at positions [0, positions), positions >= 1
};

class DecodeStream {
 public:
  // The job is valid. `default_seed` is used if it has none.
  DecodeStream(DecodeJob job, const DecodeModel& model, uint64_t default_seed);
  DecodeStream(const DecodeStream&) = delete;
  DecodeStream& operator=(const DecodeStream&) = delete;

  // What the next step runs: the last token, at first the prompt's (design idea 1). Valid until Advance.
  std::span<const TokenId> next_input() const { return std::span(tokens_).last(1); }
  int32_t next_position() const { return static_cast<int32_t>(tokens_.size()) - 1; }

  // How the token after next_input() is to be chosen, for who chooses it in place of Advance(logits), or the one that
  // many `further`, see Sampler::Spec. Unset where top log probabilities are wanted, for which it takes the logits.
  // Valid until Advance.
  std::optional<SampleSpec> next_sample(int64_t further) const;

  // Takes logits [vocab] of next_input(): one token more. Says whether it was the last. An error is the logits', see
  // Sampler. REQUIRES: none was the last, and Tell has told of the one before.
  absl::StatusOr<bool> Advance(std::span<const float> logits, SamplerScratch& scratch);
  // Takes what was chosen by next_sample() instead. REQUIRES: sampled.id != kNotSampled.
  absl::StatusOr<bool> Advance(const SampledToken& sampled);
  // The update of the token that Advance took. Changes nothing that the next step reads, so it may be called meanwhile.
  TokenUpdate Tell();
  // The last update of a stream that ends from outside: what text is held back, and `reason`. REQUIRES: all is told.
  TokenUpdate End(FinishReason reason);

  const RequestId& request_id() const { return request_id_; }
  const std::string& cache_salt() const { return cache_salt_; }
  std::span<const TokenId> tokens() const { return tokens_; }  // prompt and output
  int64_t made() const { return static_cast<int64_t>(tokens_.size()) - prompt_size_; }
  int64_t max_new_tokens() const { return max_new_tokens_; }

 private:
  bool Take(TokenId id, TokenLogprobs logprobs);
  void Spell();
  bool IsStop(TokenId id) const;
  std::string Flush();

  const DecodeModel& model_;
  RequestId request_id_;
  std::string cache_salt_;
  std::vector<TokenId> tokens_;
  int64_t prompt_size_;
  int64_t max_new_tokens_;
  bool wants_logprobs_;
  bool wants_top_logprobs_;
  bool ignore_eos_;
  std::vector<TokenId> stop_ids_;
  Sampler sampler_;
  Detokenizer detokenizer_;
  StopMatcher stop_matcher_;

  // Of the last token, until it is told.
  bool untold_ = false;
  TokenLogprobs logprobs_;  // if wanted
  std::string text_;        // if it was needed to know whether the stream ends
  std::optional<FinishReason> finish_;
};

}  // namespace baton
