#include "engine/decode/stream.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace baton {

DecodeStream::DecodeStream(RequestId request_id, RequestSpec spec, const DecodeModel& model, uint64_t default_seed)
    : model_(model),
      request_id_(std::move(request_id)),
      spec_(std::move(spec)),
      max_new_tokens_(std::min<int64_t>(spec_.sampling.max_tokens, model.positions + 1 - std::ssize(prompt()))),
      sampler_(spec_.sampling, prompt(), default_seed,
               RulesOf(spec_.sampling, *model.tokenizer, model.eos_ids, prompt())),
      output_text_(*model.tokenizer, spec_.sampling.stop, spec_.sampling.min_tokens) {
  output_text_.BeginAfter(prompt());
  output_.reserve(static_cast<size_t>(std::min<int64_t>(max_new_tokens_, 4096)));
}

void DecodeStream::Resume(int64_t kv_tokens) {
  BATON_CHECK(output_.empty() && kv_tokens + 1 >= std::ssize(prompt()) && kv_tokens < std::ssize(spec_.tokens),
              "KV of other tokens than the prompt and its output");
  while (std::ssize(prompt()) + made() <= kv_tokens) {
    Replay();
    TakeUpdate();
  }
}

bool DecodeStream::Replay() {
  const TokenId id = spec_.tokens[size()];
  sampler_.Accept(id);
  Take(id, {});
  // The lost worker went on after this token, so it ends nothing.
  finish_.reset();
  return false;
}

bool DecodeStream::IsStop(TokenId id) const {
  if (made() <= spec_.sampling.min_tokens) return false;
  const std::vector<TokenId>& stops = spec_.sampling.stop_ids;
  if (std::ranges::find(stops, id) != stops.end()) return true;
  return !spec_.sampling.ignore_eos && std::ranges::find(model_.eos_ids, id) != model_.eos_ids.end();
}

std::optional<SampleSpec> DecodeStream::next_sample(int64_t ahead) const {
  if (wants_top_logprobs()) return std::nullopt;
  return sampler_.Spec(ahead);
}

absl::StatusOr<bool> DecodeStream::Advance(std::span<const float> logits, SamplerScratch& scratch) {
  if (replays()) return Replay();
  TokenLogprobs logprobs;
  ASSIGN_OR_RETURN(const TokenId id, sampler_.Sample(logits, scratch, spec_.sampling.logprobs ? &logprobs : nullptr));
  return Take(id, std::move(logprobs));
}

absl::StatusOr<bool> DecodeStream::Advance(const SampledToken& sampled) {
  if (replays()) return Replay();
  BATON_CHECK(!wants_top_logprobs(), "the backend sampled a row that needs logits");
  if (sampled.id == kNotFinite) return sampler_.NotFinite(sampled.logprob);
  if (sampled.id == kNothingAllowed) return sampler_.NothingAllowed();
  BATON_CHECK(sampled.id >= 0 && sampled.id < model_.vocab, "the sampled token is not in the vocabulary");
  sampler_.Accept(sampled.id);
  return Take(sampled.id, {.logprob = sampled.logprob});
}

// Does only what the next step depends on, because a device waits for it. `TakeUpdate` does the
// rest.
bool DecodeStream::Take(TokenId id, TokenLogprobs logprobs) {
  BATON_CHECK(!needs_update_, "Advance before the update of the last token");
  needs_update_ = true;
  output_.push_back(id);
  if (spec_.sampling.logprobs) logprobs_ = std::move(logprobs);
  const bool stops = IsStop(id);
  // The name of a special token may complete a stop string, also if its id is a stop id.
  if (output_text_.has_stops() && (!stops || model_.tokenizer->IsSpecial(id))) Detokenize();
  if (stops || output_text_.stopped()) {
    finish_ = FinishReason::kStop;
  } else if (made() == max_new_tokens_) {
    finish_ = FinishReason::kLength;
  }
  return finish_.has_value();
}

void DecodeStream::Detokenize() { text_ = output_text_.Push(output_.back()); }

TokenUpdate DecodeStream::TakeUpdate() {
  BATON_CHECK(needs_update_, "there is no token without an update");
  needs_update_ = false;
  // A stop id gives no text.
  if (!output_text_.has_stops() && finish_ != FinishReason::kStop) Detokenize();
  TokenUpdate update;
  update.request_id = request_id_;
  if (made() <= spec_.generated) {
    text_.clear();
    return update;
  }
  update.prompt = std::exchange(prompt_, std::nullopt);
  update.tokens.push_back(output_.back());
  if (spec_.sampling.logprobs) update.logprobs.push_back(std::move(logprobs_));
  update.text = std::exchange(text_, {});
  if (finish_) update.text += output_text_.Finish();
  // The end turns an incomplete character into U+FFFD, which may complete a stop string.
  if (finish_ && output_text_.stopped()) finish_ = FinishReason::kStop;
  update.finish = finish_;
  return update;
}

TokenUpdate DecodeStream::End(FinishReason reason) {
  BATON_CHECK(!needs_update_, "End before the update of the last token");
  TokenUpdate update;
  update.request_id = request_id_;
  update.prompt = std::exchange(prompt_, std::nullopt);
  update.text = output_text_.Finish();
  update.finish = reason;
  return update;
}

}  // namespace baton
