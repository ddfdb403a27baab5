#include "shell/router_metrics.h"

#include "shell/router.h"

namespace baton {
namespace {

prometheus::Labels RoleLabel(WorkerRole role) {
  return {{"role", role == WorkerRole::kPrefill ? "prefill" : "decode"}};
}

}  // namespace

void CountRequest(Metrics& metrics, absl::StatusCode code) {
  metrics.Counter(Metric::kRequests, {{"code", absl::StatusCodeToString(code)}}).Increment();
}

void CountFollower(Metrics& metrics, absl::StatusCode code) {
  metrics.Counter(Metric::kFollowers, {{"code", absl::StatusCodeToString(code)}}).Increment();
}

RouterMetrics::RouterMetrics(Metrics& metrics)
    : metrics_(metrics),
      prompt_tokens_(metrics.Counter(Metric::kPromptTokens)),
      cached_tokens_(metrics.Counter(Metric::kCachedTokens)),
      completion_tokens_(metrics.Counter(Metric::kCompletionTokens)),
      queue_(metrics.Histogram(Metric::kQueueSeconds)),
      router_queue_(metrics.Histogram(Metric::kStageQueueSeconds, {{"stage", "router"}})),
      prefill_(metrics.Histogram(Metric::kPrefillSeconds)),
      handoff_(metrics.Histogram(Metric::kHandoffSeconds)),
      first_token_(metrics.Histogram(Metric::kFirstTokenSeconds)),
      inter_token_(metrics.Histogram(Metric::kInterTokenSeconds)),
      request_(metrics.Histogram(Metric::kRequestSeconds)),
      session_wait_(metrics.Histogram(Metric::kSessionWaitSeconds)),
      live_(metrics.Gauge(Metric::kLiveRequests)),
      waiting_(metrics.Gauge(Metric::kWaitingRequests)),
      active_sessions_(metrics.Gauge(Metric::kSessions, {{"state", "active"}})),
      waiting_sessions_(metrics.Gauge(Metric::kSessions, {{"state", "waiting"}})),
      session_limit_(metrics.Gauge(Metric::kSessionLimit)),
      prefill_workers_(metrics.Gauge(Metric::kAttachedWorkers, RoleLabel(WorkerRole::kPrefill))),
      decode_workers_(metrics.Gauge(Metric::kAttachedWorkers, RoleLabel(WorkerRole::kDecode))),
      growing_(metrics.Gauge(Metric::kGrowingPrompts)),
      references_(metrics.Gauge(Metric::kReferences)),
      announced_(metrics.Gauge(Metric::kAnnouncedRequests)),
      kept_(metrics.Gauge(Metric::kKeptOutputs)),
      kept_bytes_(metrics.Gauge(Metric::kKeptOutputBytes)),
      contexts_(metrics.Gauge(Metric::kContexts)),
      context_tokens_(metrics.Gauge(Metric::kContextTokens)) {
  for (const Metric metric : {Metric::kRequests, Metric::kFollowers}) CreateCodes(metrics, metric);
  // There from the start, for Prometheus sees no increase in a series that begins with 1.
  for (const auto role : {WorkerRole::kPrefill, WorkerRole::kDecode}) {
    metrics.Counter(Metric::kWorkersLost, RoleLabel(role));
  }
}

void RouterMetrics::OnTokens(absl::Duration since_last, int64_t tokens) {
  if (tokens > 0) inter_token_.Observe(absl::ToDoubleSeconds(since_last) / static_cast<double>(tokens));
}

void RouterMetrics::OnDelivered(int64_t tokens) { completion_tokens_.Increment(static_cast<double>(tokens)); }

void RouterMetrics::OnFirstToken(absl::Duration since_complete) {
  first_token_.Observe(absl::ToDoubleSeconds(since_complete));
}

void RouterMetrics::OnEnd(const RequestOutcome& outcome) {
  CountRequest(metrics_, outcome.status.code());
  request_.Observe(absl::ToDoubleSeconds(outcome.total));
  if (outcome.session_wait > absl::ZeroDuration()) session_wait_.Observe(absl::ToDoubleSeconds(outcome.session_wait));
  if (!outcome.prefilled) return;
  prompt_tokens_.Increment(outcome.prompt_tokens);
  cached_tokens_.Increment(outcome.cached_tokens);
  queue_.Observe(absl::ToDoubleSeconds(outcome.queue));
  router_queue_.Observe(absl::ToDoubleSeconds(outcome.router_queue));
  prefill_.Observe(absl::ToDoubleSeconds(outcome.prefill));
  handoff_.Observe(absl::ToDoubleSeconds(outcome.handoff));
}

RouterMetrics::Tokens RouterMetrics::tokens() const {
  return {static_cast<int64_t>(prompt_tokens_.Value()), static_cast<int64_t>(cached_tokens_.Value()),
          static_cast<int64_t>(completion_tokens_.Value())};
}

void RouterMetrics::OnWorkers(int64_t prefill, int64_t decode) {
  prefill_workers_.Set(static_cast<double>(prefill));
  decode_workers_.Set(static_cast<double>(decode));
}

void RouterMetrics::OnLost(WorkerRole role) { metrics_.Counter(Metric::kWorkersLost, RoleLabel(role)).Increment(); }

void RouterMetrics::OnRequests(int64_t live, int64_t waiting) {
  live_.Set(static_cast<double>(live));
  waiting_.Set(static_cast<double>(waiting));
}

void RouterMetrics::OnSessions(const SessionGate::Counts& counts, int64_t limit) {
  active_sessions_.Set(static_cast<double>(counts.active));
  waiting_sessions_.Set(static_cast<double>(counts.waiting));
  session_limit_.Set(static_cast<double>(limit));
}

void RouterMetrics::OnAgents(const AgentGraph::Counts& counts, const ContextStore& contexts) {
  growing_.Set(static_cast<double>(counts.growing));
  references_.Set(static_cast<double>(counts.references));
  announced_.Set(static_cast<double>(counts.announced));
  kept_.Set(static_cast<double>(counts.kept));
  kept_bytes_.Set(static_cast<double>(counts.kept_bytes));
  contexts_.Set(static_cast<double>(contexts.size()));
  context_tokens_.Set(static_cast<double>(contexts.tokens()));
}

}  // namespace baton
