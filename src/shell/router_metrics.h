// Counts the events of a router.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "metrics/metrics.h"
#include "router/worker_state.h"

namespace baton {

struct RequestOutcome;
struct RequestProgress;

// Thread-safe.
class RouterMetrics {
 public:
  explicit RouterMetrics(Metrics& metrics);
  void OnProgress(const RequestProgress& progress);  // output that a client receives
  void OnEnd(const RequestOutcome& outcome);
  void OnRefused(absl::StatusCode code);      // a call that did not become a request
  void OnPrefillHint(absl::StatusCode code);  // a prefill hint that ended or was refused
  void OnValue(absl::StatusCode code);        // a value that ended
  void OnLost(WorkerRole role);
  void OnHealth(WorkerHealth health);
  struct Tokens {
    int64_t prompt = 0, cached = 0, completion = 0;  // as counted by OnEnd
  };
  Tokens tokens() const;

 private:
  RouterCounts counts_;
};

}  // namespace baton
