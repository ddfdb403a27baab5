#include "shell/router_metrics.h"

#include "router/dispatcher.h"

namespace baton {

RouterMetrics::RouterMetrics(Metrics& metrics) : counts_(metrics.Create<RouterCounts>()) {
  counts_.requests.CreateCodes();
  counts_.followers.CreateCodes();
}

void RouterMetrics::OnTokens(absl::Duration since_last, int64_t tokens) {
  if (tokens > 0) counts_.inter_token->Observe(absl::ToDoubleSeconds(since_last) / static_cast<double>(tokens));
}

void RouterMetrics::OnDelivered(int64_t tokens) { counts_.completion_tokens->Increment(static_cast<double>(tokens)); }

void RouterMetrics::OnFirstToken(absl::Duration since_complete) {
  counts_.first_token->Observe(absl::ToDoubleSeconds(since_complete));
}

void RouterMetrics::OnEnd(const RequestOutcome& outcome) {
  OnRefused(outcome.status.code());
  counts_.request->Observe(absl::ToDoubleSeconds(outcome.total));
  if (outcome.session_wait > absl::ZeroDuration()) {
    counts_.session_wait->Observe(absl::ToDoubleSeconds(outcome.session_wait));
  }
  if (!outcome.prefilled) return;
  counts_.prompt_tokens->Increment(outcome.prompt_tokens);
  counts_.cached_tokens->Increment(outcome.cached_tokens);
  counts_.queue->Observe(absl::ToDoubleSeconds(outcome.queue));
  counts_.router_queue->Observe(absl::ToDoubleSeconds(outcome.router_queue));
  counts_.prefill->Observe(absl::ToDoubleSeconds(outcome.prefill));
  counts_.handoff->Observe(absl::ToDoubleSeconds(outcome.handoff));
}

void RouterMetrics::OnRefused(absl::StatusCode code) { counts_.requests.Increment(code); }

void RouterMetrics::OnFollower(absl::StatusCode code) { counts_.followers.Increment(code); }

void RouterMetrics::OnLost(WorkerRole role) {
  (role == WorkerRole::kPrefill ? counts_.lost_prefill_workers : counts_.lost_decode_workers)->Increment();
}

RouterMetrics::Tokens RouterMetrics::tokens() const {
  return {static_cast<int64_t>(counts_.prompt_tokens->Value()), static_cast<int64_t>(counts_.cached_tokens->Value()),
          static_cast<int64_t>(counts_.completion_tokens->Value())};
}

}  // namespace baton
