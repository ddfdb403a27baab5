#include "shell/vllm_metrics.h"

namespace baton {
namespace {

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

}  // namespace

VllmMetrics::VllmMetrics(Metrics& metrics, const std::vector<std::string>& models) : metrics_(metrics) {
  for (const std::string& model : models) Of(model);
}

const VllmCounts& VllmMetrics::Of(const std::string& model) {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(model);
  if (found != models_.end()) return found->second;
  return models_.emplace(model, metrics_.Create<VllmCounts>({{"model_name", model}})).first->second;
}

void VllmMetrics::OnProgress(const RequestProgress& progress) {
  const int64_t tokens = std::ssize(progress.update.tokens);
  if (tokens == 0) return;
  const VllmCounts& model = Of(progress.served->name);
  model.generation_tokens->Increment(static_cast<double>(tokens));
  if (progress.first) {
    model.first_token->Observe(Seconds(progress.wait));
  } else {
    model.inter_token->Observe(Seconds(progress.wait) / static_cast<double>(tokens));
  }
}

void VllmMetrics::OnEnd(const RequestOutcome& outcome) {
  const VllmCounts& model = Of(outcome.model);
  if (outcome.prefilled) {
    model.prompt_tokens->Increment(outcome.prompt_tokens);
    model.prefix_queries->Increment(outcome.prompt_tokens);
    model.cached_tokens->Increment(outcome.cached_tokens);
    model.prefix_hits->Increment(outcome.cached_tokens);
  }
  if (outcome.prefill_only) return;  // vLLM has no such requests
  const bool cancelled = absl::IsCancelled(outcome.status) || outcome.finish == FinishReason::kCancelled;
  if (cancelled) model.aborted->Increment();
  if (cancelled || !outcome.status.ok() || outcome.completion_tokens == 0) return;
  (outcome.finish == FinishReason::kStop ? model.stopped : model.full)->Increment();
  model.prompt_length->Observe(outcome.prompt_tokens);
  model.output_length->Observe(outcome.completion_tokens);
  // For vLLM, a request arrives when the outputs that its prompt contains have been written.
  const StageTimes& times = outcome.times;
  const absl::Duration queues = times.queue + times.decode_queue;
  const absl::Duration prefill = times.prefill + times.handoff + times.first_step;
  model.whole->Observe(Seconds(queues + prefill + times.decode));
  model.queue->Observe(Seconds(queues));
  model.prefill->Observe(Seconds(prefill));
  model.decode->Observe(Seconds(times.decode));
  model.inference->Observe(Seconds(prefill + times.decode));
  if (outcome.completion_tokens > 1) model.per_token->Observe(Seconds(times.decode) / (outcome.completion_tokens - 1));
}

}  // namespace baton
