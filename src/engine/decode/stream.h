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
#include "request/request_spec.h"
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
  // `default_seed` is used if the spec has none. REQUIRES: the spec is valid and has tokens.
  DecodeStream(RequestId request_id, RequestSpec spec, const DecodeModel& model, uint64_t default_seed);
  DecodeStream(const DecodeStream&) = delete;
  DecodeStream& operator=(const DecodeStream&) = delete;

  // What the next step runs: the last token, at first the prompt's (design idea 1). Valid until Advance.
  std::span<const TokenId> next_input() const {
    return (output_.empty() ? std::span<const TokenId>(spec_.tokens) : std::span<const TokenId>(output_)).last(1);
  }
  int32_t next_position() const { return static_cast<int32_t>(size()) - 1; }

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
  const RequestSpec& spec() const { return spec_; }
  // Tokens of prompt and output, and the one at `position`.
  size_t size() const { return spec_.tokens.size() + output_.size(); }
  TokenId token(size_t position) const {
    const size_t prompt = spec_.tokens.size();
    return position < prompt ? spec_.tokens[position] : output_[position - prompt];
  }
  int64_t made() const { return std::ssize(output_); }

 private:
  bool Take(TokenId id, TokenLogprobs logprobs);
  void Spell();
  bool wants_top_logprobs() const { return spec_.sampling.logprobs.value_or(0) > 0; }
  bool IsStop(TokenId id) const;
  std::string Flush();

  const DecodeModel& model_;
  RequestId request_id_;
  RequestSpec spec_;
  std::vector<TokenId> output_;
  int64_t max_new_tokens_;  // what the spec wants, as far as the model has positions for it
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
