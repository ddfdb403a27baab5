// The tokens of one request. It takes the prompt and the model's logits, and makes tokens and text.
// It does not depend on blocks and batches.
//
// A resumed request brings output of a lost decode worker. The stream takes this output up as its
// own and returns no update for it. Sampler, text and stop strings are then in the same state as
// those of the lost worker were.
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
#include "text/output_text.h"
#include "text/tokenizer.h"

namespace baton {

// The parameters that all requests of a decode worker share.
struct DecodeModel {
  const Tokenizer* tokenizer = nullptr;  // must outlive the streams
  int64_t vocab = 0;
  std::vector<TokenId> eos_ids;
  int64_t positions = 0;  // KV of a sequence is at positions [0, positions); positions >= 1
};

// Makes the output of one request. Call `next_input`, `Advance` and `TakeUpdate` for each token,
// until `Advance` returns true. Not thread-safe, but `TakeUpdate` may run while the next step reads
// next_input() and next_sample().
class DecodeStream {
 public:
  // `default_seed` is used if the spec has no seed. REQUIRES: the spec is valid and has tokens. The
  // model outlives the stream.
  DecodeStream(RequestId request_id, RequestSpec spec, const DecodeModel& model, uint64_t default_seed);
  DecodeStream(const DecodeStream&) = delete;
  DecodeStream& operator=(const DecodeStream&) = delete;

  // Takes up the output that the spec brings, of which KV of the tokens [0, kv_tokens) exists.
  // Advance replays the output behind these tokens, one token in each call. REQUIRES: called once,
  // before Advance; prompt_tokens() - 1 <= kv_tokens < tokens.size() of the spec.
  void Resume(int64_t kv_tokens);

  // Takes the log probabilities of the prompt, which the next update returns. REQUIRES: the stream
  // has no output, and End or TakeUpdate follows.
  void SetPrompt(PromptLogprobs prompt) { prompt_ = std::move(prompt); }

  // Returns the token that the next step runs: the last token of the output, or first the prompt's
  // last token (design idea 1). Valid until Advance.
  std::span<const TokenId> next_input() const {
    return (output_.empty() ? prompt() : std::span<const TokenId>(output_)).last(1);
  }
  int32_t next_position() const { return static_cast<int32_t>(size()) - 1; }

  // Returns the parameters for a backend that samples on the device. next_sample(k) describes the
  // token that is k positions after the next one (Sampler::Spec). Unset if the request wants top
  // log probabilities, because these need the logits. Valid until Advance. REQUIRES: k is 0, or
  // may_run_ahead().
  std::optional<SampleSpec> next_sample(int64_t ahead) const;
  // Returns whether the token after the next one can be planned before the next one is chosen.
  bool may_run_ahead() const { return sampler_.IsSettled(1); }

  // Chooses the next token from the logits [vocab] of next_input(). Returns true if the token is
  // the last one. Returns the error of Sampler::Sample if the logits are not usable. REQUIRES: no
  // earlier token was the last, and `TakeUpdate` was called for the token before.
  absl::StatusOr<bool> Advance(std::span<const float> logits, SamplerScratch& scratch);
  // As above, for a token that the backend chose with next_sample(). Returns the error of the
  // sampler if the backend could choose none. REQUIRES: also sampled.id != kNotSampled.
  absl::StatusOr<bool> Advance(const SampledToken& sampled);
  // Returns the update with the token of the last Advance. The update of a replayed token is empty.
  // Changes nothing that the next step reads, so it may be called while that step runs. REQUIRES:
  // Advance was called since the last `TakeUpdate`.
  TokenUpdate TakeUpdate();
  // Ends the stream for `reason`. Returns its last update, with the text that was held back.
  // REQUIRES: `TakeUpdate` was called for the last token.
  TokenUpdate End(FinishReason reason);

  const RequestId& request_id() const { return request_id_; }
  const RequestSpec& spec() const { return spec_; }
  // The number of tokens of prompt and output, and the token at `position`.
  size_t size() const { return spec_.prompt_tokens() + output_.size(); }
  TokenId token(size_t position) const {
    const size_t prompt = spec_.prompt_tokens();
    return position < prompt ? spec_.tokens[position] : output_[position - prompt];
  }
  // The number of tokens of the output, with those that were taken up.
  int64_t made() const { return std::ssize(output_); }

 private:
  std::span<const TokenId> prompt() const { return std::span(spec_.tokens).first(spec_.prompt_tokens()); }
  // Returns whether the next token is output of the lost worker.
  bool replays() const { return made() < spec_.generated; }
  bool Replay();
  bool Take(TokenId id, TokenLogprobs logprobs);
  void Detokenize();
  bool wants_top_logprobs() const { return spec_.sampling.logprobs.value_or(0) > 0; }
  bool IsStop(TokenId id) const;

  const DecodeModel& model_;
  RequestId request_id_;
  RequestSpec spec_;
  std::vector<TokenId> output_;
  int64_t max_new_tokens_;  // of the spec, limited by the model's positions
  Sampler sampler_;
  OutputText output_text_;
  std::optional<PromptLogprobs> prompt_;  // until the first update

  // State of the last token, until `TakeUpdate`.
  bool needs_update_ = false;
  TokenLogprobs logprobs_;  // if the request wants them
  std::string text_;        // if Advance had to look for stop strings
  std::optional<FinishReason> finish_;
};

}  // namespace baton
