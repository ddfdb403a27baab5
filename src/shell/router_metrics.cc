#include "shell/router_metrics.h"

#include "router/dispatcher.h"

namespace baton {

RouterMetrics::RouterMetrics(Metrics& metrics) : counts_(metrics.Create<RouterCounts>()) {
  counts_.requests.CreateCodes();
  counts_.prefill_hints.CreateCodes();
  counts_.values.CreateCodes();
}

void RouterMetrics::OnProgress(const RequestProgress& progress) {
  const auto tokens = static_cast<double>(progress.update.tokens.size());
  if (tokens == 0) return;
  counts_.completion_tokens->Increment(tokens);
  const double wait = absl::ToDoubleSeconds(progress.wait);
  progress.first ? counts_.first_token->Observe(wait) : counts_.inter_token->Observe(wait / tokens);
}

void RouterMetrics::OnEnd(const RequestOutcome& outcome) {
  OnRefused(outcome.status.code());
  counts_.resumed->Increment(outcome.resumed);
  counts_.hedged->Increment(outcome.hedged);
  counts_.moved->Increment(outcome.moved);
  const bool failed = !outcome.status.ok() && !absl::IsCancelled(outcome.status);
  if (outcome.was_resuming && failed) counts_.not_resumed->Increment();
  counts_.request->Observe(absl::ToDoubleSeconds(outcome.total));
  if (outcome.session_wait > absl::ZeroDuration()) {
    counts_.session_wait->Observe(absl::ToDoubleSeconds(outcome.session_wait));
  }
  if (!outcome.prefilled) return;
  counts_.prompt_tokens->Increment(outcome.prompt_tokens);
  counts_.cached_tokens->Increment(outcome.cached_tokens);
  counts_.queue->Observe(absl::ToDoubleSeconds(outcome.times.queue));
  counts_.router_queue->Observe(absl::ToDoubleSeconds(outcome.router_queue));
  counts_.prefill->Observe(absl::ToDoubleSeconds(outcome.times.prefill));
  counts_.handoff->Observe(absl::ToDoubleSeconds(outcome.times.handoff));
}

void RouterMetrics::OnRefused(absl::StatusCode code) { counts_.requests.Increment(code); }

void RouterMetrics::OnPrefillHint(absl::StatusCode code) { counts_.prefill_hints.Increment(code); }

void RouterMetrics::OnValue(absl::StatusCode code) { counts_.values.Increment(code); }

void RouterMetrics::OnLost(WorkerRole role) {
  (role == WorkerRole::kPrefill ? counts_.lost_prefill_workers : counts_.lost_decode_workers)->Increment();
}

void RouterMetrics::OnHealth(WorkerHealth health) {
  if (health == WorkerHealth::kSilent) counts_.silent_workers->Increment();
  if (health == WorkerHealth::kHung) counts_.hung_workers->Increment();
}

RouterMetrics::Tokens RouterMetrics::tokens() const {
  return {static_cast<int64_t>(counts_.prompt_tokens->Value()), static_cast<int64_t>(counts_.cached_tokens->Value()),
          static_cast<int64_t>(counts_.completion_tokens->Value())};
}

}  // namespace baton
