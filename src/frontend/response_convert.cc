#include "frontend/response_convert.h"

#include "rpc/worker_convert.h"

namespace baton {

v1::Final ToFinal(const RequestOutcome& outcome) {
  v1::Final final;
  final.set_finish_reason(ToProto(outcome.finish));
  final.mutable_usage()->set_prompt_tokens(outcome.prompt_tokens);
  final.mutable_usage()->set_cached_tokens(outcome.cached_tokens);
  final.mutable_usage()->set_shared_tokens(outcome.shared_tokens);
  final.mutable_usage()->set_completion_tokens(outcome.completion_tokens);
  final.set_context_length(outcome.context.tokens);
  final.set_lease_ms(absl::ToInt64Milliseconds(outcome.context.duration));
  final.set_attempt(outcome.attempt);
  v1::Timings& timings = *final.mutable_timings();
  timings.set_upstream_ms(absl::ToDoubleMilliseconds(outcome.times.upstream));
  timings.set_queue_ms(absl::ToDoubleMilliseconds(outcome.times.queue));
  timings.set_prefill_ms(absl::ToDoubleMilliseconds(outcome.times.prefill));
  timings.set_handoff_ms(absl::ToDoubleMilliseconds(outcome.times.handoff));
  timings.set_decode_queue_ms(absl::ToDoubleMilliseconds(outcome.times.decode_queue));
  timings.set_first_step_ms(absl::ToDoubleMilliseconds(outcome.times.first_step));
  timings.set_decode_ms(absl::ToDoubleMilliseconds(outcome.times.decode));
  timings.set_first_token_ms(absl::ToDoubleMilliseconds(outcome.first_token));
  timings.set_total_ms(absl::ToDoubleMilliseconds(outcome.total));
  return final;
}

void AddTo(v1::GenerateResponse& response, const TokenUpdate& update) {
  response.mutable_text()->append(update.text);
  response.mutable_token_ids()->Add(update.tokens.begin(), update.tokens.end());
  for (const TokenLogprobs& logprobs : update.logprobs) *response.add_logprobs() = ToProto(logprobs);
  if (update.prompt) *response.mutable_prompt_logprobs() = ToProto(*update.prompt);
}

v1::PrefillOnlyResponse ToPrefillOnly(const RequestId& id, const RequestOutcome& outcome) {
  v1::PrefillOnlyResponse response;
  response.set_request_id(id);
  v1::Final final = ToFinal(outcome);
  response.mutable_usage()->Swap(final.mutable_usage());
  response.mutable_timings()->Swap(final.mutable_timings());
  response.set_context_length(final.context_length());
  response.set_lease_ms(final.lease_ms());
  return response;
}

}  // namespace baton
