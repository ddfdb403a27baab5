// Prometheus metrics of one process. metric_table.cc has the one table that names and documents them all.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace prometheus {
class Exposer;
}

namespace baton {

enum class Metric {
  // Router.
  kRequests,
  kQuotaRefusals,
  kFollowers,
  kPromptTokens,
  kCachedTokens,
  kCompletionTokens,
  kQueueSeconds,
  kPrefillSeconds,
  kHandoffSeconds,
  kFirstTokenSeconds,
  kInterTokenSeconds,
  kRequestSeconds,
  kLiveRequests,
  kWaitingRequests,
  kSessions,
  kSessionLimit,
  kSessionWaitSeconds,
  kGrowingPrompts,
  kReferences,
  kAnnouncedRequests,
  kKeptOutputs,
  kKeptOutputBytes,
  kContexts,
  kContextTokens,
  kAttachedWorkers,
  kWorkersLost,
  kHttpConnections,
  kHttpConnectionsShed,
  kHttpResponses,
  // Workers.
  kWorkerRequests,
  kWorkerQueuedTokens,
  kKvBlocks,
  kLeasedBlocks,
  kStagedBytes,
  kStagingFailures,
  kStagingNotRead,
  kStagingDiskOff,
  kWorkerJobs,
  kWorkerTokens,
  kTransferBytes,
  kTransferSeconds,
  kTransferDescriptors,
  kTransferFailures,
  kHandoffs,
  kHandoffBlocks,
  kExpiredLeases,
  kFailedChecks,
  kRefusedWrites,
  kPreemptions,
  kDecodeSteps,
  // Both.
  kStageQueueSeconds,
  kEtcdUp,
  kEtcdLastAnswer,
  // vLLM's, of routers.
  kVllmPromptTokens,
  kVllmCachedTokens,
  kVllmPrefixQueries,
  kVllmPrefixHits,
  kVllmGenerationTokens,
  kVllmRequests,
  kVllmFirstTokenSeconds,
  kVllmInterTokenSeconds,
  kVllmPerTokenSeconds,
  kVllmRequestSeconds,
  kVllmQueueSeconds,
  kVllmPrefillSeconds,
  kVllmDecodeSeconds,
  kVllmInferenceSeconds,
  kVllmPromptLength,
  kVllmOutputLength,
  // vLLM's, of workers.
  kVllmRunning,
  kVllmWaiting,
  kVllmKvUsage,
  kVllmPreemptions,
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  // REQUIRES: the metric is of this kind. The references live as long as this. Thread-safe.
  prometheus::Counter& Counter(Metric metric, const prometheus::Labels& labels = {});
  prometheus::Gauge& Gauge(Metric metric, const prometheus::Labels& labels = {});
  prometheus::Histogram& Histogram(Metric metric, const prometheus::Labels& labels = {});
  // Answers GET /metrics on host:port, and says where: port 0 picks a free one. UNAVAILABLE: it cannot be bound.
  absl::StatusOr<std::string> Serve(const std::string& listen);
  // What it answers: Prometheus' text format, version 0.0.4.
  std::string Text() const;

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  std::map<Metric, prometheus::Family<prometheus::Counter>*> counters_;
  std::map<Metric, prometheus::Family<prometheus::Gauge>*> gauges_;
  std::map<Metric, prometheus::Family<prometheus::Histogram>*> histograms_;
  std::unique_ptr<prometheus::Exposer> exposer_;
};

// Of a counter by gRPC's `code`, a series for each, which begins with 0: Prometheus sees no increase in one that begins
// with 1.
void CreateCodes(Metrics& metrics, Metric counter);

}  // namespace baton
