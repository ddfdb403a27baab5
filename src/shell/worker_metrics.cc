#include "shell/worker_metrics.h"

#include <algorithm>

namespace baton {
namespace {

std::string RoleName(WorkerRole role) { return role == WorkerRole::kPrefill ? "prefill" : "decode"; }

}  // namespace

WorkerMetrics::WorkerMetrics(Metrics& metrics, WorkerRole role, const std::string& model, bool vllm)
    : metrics_(metrics),
      role_(RoleName(role)),
      running_(metrics.Gauge(Metric::kWorkerRequests, {{"role", role_}, {"model", model}, {"state", "running"}})),
      queued_(metrics.Gauge(Metric::kWorkerRequests, {{"role", role_}, {"model", model}, {"state", "queued"}})),
      queued_tokens_(metrics.Gauge(Metric::kWorkerQueuedTokens, {{"role", role_}, {"model", model}})),
      free_(metrics.Gauge(Metric::kKvBlocks, {{"role", role_}, {"model", model}, {"state", "free"}})),
      cached_(metrics.Gauge(Metric::kKvBlocks, {{"role", role_}, {"model", model}, {"state", "cached"}})),
      used_(metrics.Gauge(Metric::kKvBlocks, {{"role", role_}, {"model", model}, {"state", "used"}})),
      expired_leases_(metrics.Counter(Metric::kExpiredLeases, {{"role", role_}})),
      queue_(metrics.Histogram(Metric::kStageQueueSeconds, {{"stage", role_}})) {
  if (role == WorkerRole::kPrefill) CreateCodes(metrics, Metric::kHandoffs);
  if (!vllm) return;
  // vLLM numbers its engines; here, too, several may serve one model, and report at one address.
  const prometheus::Labels labels{{"model_name", model}, {"engine", role_}};
  vllm_.emplace(Vllm{metrics.Gauge(Metric::kVllmRunning, labels), metrics.Gauge(Metric::kVllmWaiting, labels),
                     metrics.Gauge(Metric::kVllmKvUsage, labels), metrics.Counter(Metric::kVllmPreemptions, labels)});
}

void WorkerMetrics::Raise(prometheus::Counter& counter, int64_t total) {
  int64_t& told = told_[&counter];
  if (total > told) counter.Increment(static_cast<double>(total - told));
  told = std::max(told, total);
}

void WorkerMetrics::OnLoad(const WorkerLoad& load, int64_t blocks_total) {
  running_.Set(load.running_requests);
  queued_.Set(load.queued_requests);
  queued_tokens_.Set(static_cast<double>(load.queued_tokens));
  free_.Set(static_cast<double>(load.blocks_free));
  cached_.Set(static_cast<double>(load.blocks_cached));
  const auto used = static_cast<double>(blocks_total - load.blocks_free - load.blocks_cached);
  used_.Set(used);
  if (!vllm_) return;
  vllm_->kv_usage.Set(used / static_cast<double>(blocks_total));
}

void WorkerMetrics::OnVllmLoad(int64_t running, int64_t waiting) {
  if (!vllm_) return;
  vllm_->running.Set(static_cast<double>(running));
  vllm_->waiting.Set(static_cast<double>(waiting));
}

void WorkerMetrics::OnLeases(int64_t blocks) { metrics_.Gauge(Metric::kLeasedBlocks).Set(static_cast<double>(blocks)); }

void WorkerMetrics::OnStaged(const KvStaging::Counts& counts, int64_t block_bytes) {
  const auto set = [&](const char* tier, int64_t blocks) {
    metrics_.Gauge(Metric::kStagedBytes, {{"tier", tier}}).Set(static_cast<double>(blocks * block_bytes));
  };
  set("host", counts.host);
  set("disk", counts.disk);
  Raise(metrics_.Counter(Metric::kStagingFailures), counts.failures);
  Raise(metrics_.Counter(Metric::kStagingNotRead), counts.not_read);
  Raise(metrics_.Counter(Metric::kStagingDiskOff), counts.disk_off);
}

void WorkerMetrics::OnJobEnded(absl::StatusCode code) {
  metrics_.Counter(Metric::kWorkerJobs, {{"role", role_}, {"code", absl::StatusCodeToString(code)}}).Increment();
}

void WorkerMetrics::OnTokens(const std::string& source, int64_t total) {
  Raise(metrics_.Counter(Metric::kWorkerTokens, {{"role", role_}, {"source", source}}), total);
}

void WorkerMetrics::OnTransfer(int64_t total_bytes, const HandoffTotals& handoffs) {
  Raise(metrics_.Counter(Metric::kTransferBytes), total_bytes);
  for (const auto& [code, ended] : handoffs.ended) {
    Raise(metrics_.Counter(Metric::kHandoffs, {{"code", absl::StatusCodeToString(code)}}), ended);
  }
  Raise(metrics_.Counter(Metric::kHandoffBlocks, {{"source", "pushed"}}), handoffs.blocks_pushed);
  Raise(metrics_.Counter(Metric::kHandoffBlocks, {{"source", "held"}}), handoffs.blocks_held);
  OnExpiredLeases(handoffs.expired_leases);
}

void WorkerMetrics::OnExpiredLeases(int64_t total) { Raise(expired_leases_, total); }

void WorkerMetrics::OnFailedChecks(int64_t total) { Raise(metrics_.Counter(Metric::kFailedChecks), total); }

void WorkerMetrics::OnRefusedWrites(int64_t total) { Raise(metrics_.Counter(Metric::kRefusedWrites), total); }

void WorkerMetrics::OnPreemptions(int64_t total) {
  Raise(metrics_.Counter(Metric::kPreemptions), total);
  if (vllm_) Raise(vllm_->preemptions, total);
}

void WorkerMetrics::OnSteps(int64_t total, int64_t ahead) {
  Raise(metrics_.Counter(Metric::kDecodeSteps, {{"begun", "ahead"}}), ahead);
  Raise(metrics_.Counter(Metric::kDecodeSteps, {{"begun", "after"}}), total - ahead);
}

void WorkerMetrics::OnTakenUp(absl::Duration queued) { queue_.Observe(absl::ToDoubleSeconds(queued)); }

}  // namespace baton
