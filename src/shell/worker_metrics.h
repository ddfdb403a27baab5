// What a worker counts.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/handoff/sender.h"
#include "kv/staging/staging.h"
#include "metrics/metric_table.h"
#include "router/worker_state.h"

namespace baton {

// How often a worker tells its load to routers and to its metrics.
inline constexpr std::chrono::milliseconds kLoadPeriod(100);

class WorkerMetrics {
 public:
  // `model`: the worker's, by which gauges of several decoders in one process are told apart. `vllm`: also under vLLM's
  // names.
  WorkerMetrics(Metrics& metrics, WorkerRole role, const std::string& model, bool vllm);
  void OnLoad(const WorkerLoad& load, int64_t blocks_total);
  // As vLLM counts: what steps compute, and what waits for it and has all that it needs. Nothing without `vllm`.
  void OnVllmLoad(int64_t running, int64_t waiting);
  void OnLeases(int64_t blocks);
  void OnStaged(const KvStaging::Counts& counts, int64_t block_bytes);
  void OnJobEnded(absl::StatusCode code);
  // `total` since the start.
  void OnTokens(const std::string& source, int64_t total);
  // All since the start.
  void OnTransfer(int64_t total_bytes, const HandoffTotals& handoffs);
  void OnExpiredLeases(int64_t total);
  void OnFailedChecks(int64_t total);
  void OnRefusedWrites(int64_t total);
  void OnPreemptions(int64_t total);
  // `ahead`: of the total.
  void OnSteps(int64_t total, int64_t ahead);
  // It waited here until a step took it up.
  void OnTakenUp(absl::Duration queued);

 private:
  // A counter that somebody else counts, and others of this process may, too: by what has come since the last time.
  void Raise(prometheus::Counter& counter, int64_t total);

  Metrics& metrics_;
  const std::string role_;
  std::map<const prometheus::Counter*, int64_t> told_;
  prometheus::Gauge &running_, &queued_, &queued_tokens_, &free_, &cached_, &used_;
  prometheus::Counter& expired_leases_;
  prometheus::Histogram& queue_;
  struct Vllm {
    prometheus::Gauge &running, &waiting, &kv_usage;
    prometheus::Counter& preemptions;
  };
  std::optional<Vllm> vllm_;
};

}  // namespace baton
