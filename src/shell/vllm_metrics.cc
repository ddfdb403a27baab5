#include "shell/vllm_metrics.h"

namespace baton {
namespace {

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

prometheus::Labels Labels(const std::string& model) { return {{"model_name", model}}; }

prometheus::Labels Labels(const std::string& model, const char* reason) {
  return {{"model_name", model}, {"finished_reason", reason}};
}

}  // namespace

VllmMetrics::OfModel::OfModel(Metrics& metrics, const std::string& model)
    : prompt_tokens(metrics.Counter(Metric::kVllmPromptTokens, Labels(model))),
      cached_tokens(metrics.Counter(Metric::kVllmCachedTokens, Labels(model))),
      prefix_queries(metrics.Counter(Metric::kVllmPrefixQueries, Labels(model))),
      prefix_hits(metrics.Counter(Metric::kVllmPrefixHits, Labels(model))),
      generation_tokens(metrics.Counter(Metric::kVllmGenerationTokens, Labels(model))),
      stopped(metrics.Counter(Metric::kVllmRequests, Labels(model, "stop"))),
      full(metrics.Counter(Metric::kVllmRequests, Labels(model, "length"))),
      aborted(metrics.Counter(Metric::kVllmRequests, Labels(model, "abort"))),
      first_token(metrics.Histogram(Metric::kVllmFirstTokenSeconds, Labels(model))),
      inter_token(metrics.Histogram(Metric::kVllmInterTokenSeconds, Labels(model))),
      per_token(metrics.Histogram(Metric::kVllmPerTokenSeconds, Labels(model))),
      whole(metrics.Histogram(Metric::kVllmRequestSeconds, Labels(model))),
      queue(metrics.Histogram(Metric::kVllmQueueSeconds, Labels(model))),
      prefill(metrics.Histogram(Metric::kVllmPrefillSeconds, Labels(model))),
      decode(metrics.Histogram(Metric::kVllmDecodeSeconds, Labels(model))),
      inference(metrics.Histogram(Metric::kVllmInferenceSeconds, Labels(model))),
      prompt_length(metrics.Histogram(Metric::kVllmPromptLength, Labels(model))),
      output_length(metrics.Histogram(Metric::kVllmOutputLength, Labels(model))) {}

VllmMetrics::VllmMetrics(Metrics& metrics, const std::vector<std::string>& models) : metrics_(metrics) {
  for (const std::string& model : models) Of(model);
}

VllmMetrics::OfModel& VllmMetrics::Of(const std::string& model) {
  const auto found = models_.find(model);
  return found != models_.end() ? found->second : models_.try_emplace(model, metrics_, model).first->second;
}

void VllmMetrics::OnProgress(const RequestProgress& progress) {
  const int64_t tokens = std::ssize(progress.update.tokens);
  if (tokens == 0) return;
  OfModel& model = Of(progress.served->name);
  model.generation_tokens.Increment(static_cast<double>(tokens));
  if (progress.first) {
    model.first_token.Observe(Seconds(progress.wait));
  } else {
    model.inter_token.Observe(Seconds(progress.wait) / static_cast<double>(tokens));
  }
}

void VllmMetrics::OnEnd(const RequestEnded& ended) {
  const RequestOutcome& outcome = ended.outcome;
  OfModel& model = Of(ended.parties.model);
  if (outcome.prefilled) {
    model.prompt_tokens.Increment(outcome.prompt_tokens);
    model.prefix_queries.Increment(outcome.prompt_tokens);
    model.cached_tokens.Increment(outcome.cached_tokens);
    model.prefix_hits.Increment(outcome.cached_tokens);
  }
  if (ended.parties.prefill_only) return;  // vLLM has no such requests
  const bool cancelled = absl::IsCancelled(outcome.status) || outcome.finish == FinishReason::kCancelled;
  if (cancelled) model.aborted.Increment();
  if (cancelled || !outcome.status.ok() || outcome.completion_tokens == 0) return;
  (outcome.finish == FinishReason::kStop ? model.stopped : model.full).Increment();
  model.prompt_length.Observe(outcome.prompt_tokens);
  model.output_length.Observe(outcome.completion_tokens);
  // From when the prompt was complete: for vLLM a request comes when the outputs that it is made of are there.
  const absl::Duration whole = outcome.total - outcome.upstream;
  const absl::Duration decode = outcome.total - outcome.first_token;
  model.whole.Observe(Seconds(whole));
  model.queue.Observe(Seconds(outcome.queue));
  model.prefill.Observe(Seconds(whole - decode - outcome.queue));
  model.decode.Observe(Seconds(decode));
  model.inference.Observe(Seconds(whole - outcome.queue));
  if (outcome.completion_tokens > 1) model.per_token.Observe(Seconds(decode) / (outcome.completion_tokens - 1));
}

}  // namespace baton
