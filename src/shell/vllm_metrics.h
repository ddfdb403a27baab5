// Counts the events of a router under vLLM's metric names. docs/observability.md lists the names.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "metrics/metrics.h"
#include "router/dispatcher.h"

namespace baton {

// Thread-safe.
class VllmMetrics {
 public:
  // Series of `models` exist from the start. Those of another model begin with its first request.
  VllmMetrics(Metrics& metrics, const std::vector<std::string>& models);
  void OnProgress(const RequestProgress& progress);
  void OnEnd(const RequestOutcome& outcome);

 private:
  const VllmCounts& Of(const std::string& model);

  Metrics& metrics_;
  std::mutex mutex_;
  std::map<std::string, VllmCounts> models_;  // guarded by mutex_, but not the metrics themselves
};

}  // namespace baton
