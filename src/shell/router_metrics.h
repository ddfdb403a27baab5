// What a router counts.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/agent_graph.h"
#include "agent/context_store.h"
#include "metrics/metric_table.h"
#include "router/session_gate.h"
#include "router/worker_state.h"

namespace baton {

struct RequestOutcome;

// Every request that ends, accepted or not.
void CountRequest(Metrics& metrics, absl::StatusCode code);

// Every follower that ends, accepted or not.
void CountFollower(Metrics& metrics, absl::StatusCode code);

class RouterMetrics {
 public:
  explicit RouterMetrics(Metrics& metrics);
  void OnTokens(absl::Duration since_last, int64_t tokens);  // not for a request's first
  void OnDelivered(int64_t tokens);                          // to whoever asked for them
  void OnFirstToken(absl::Duration since_complete);          // the prompt
  void OnEnd(const RequestOutcome& outcome);
  void OnFollower(absl::StatusCode code) { CountFollower(metrics_, code); }
  void OnWorkers(int64_t prefill, int64_t decode);
  void OnLost(WorkerRole role);
  void OnRequests(int64_t live, int64_t waiting);
  void OnSessions(const SessionGate::Counts& counts, int64_t limit);  // 0: none
  void OnAgents(const AgentGraph::Counts& counts, const ContextStore& contexts);
  struct Tokens {
    int64_t prompt = 0, cached = 0, completion = 0;  // as counted by OnEnd
  };
  Tokens tokens() const;

 private:
  Metrics& metrics_;
  prometheus::Counter &prompt_tokens_, &cached_tokens_, &completion_tokens_;
  prometheus::Histogram &queue_, &router_queue_, &prefill_, &handoff_, &first_token_, &inter_token_, &request_,
      &session_wait_;
  prometheus::Gauge &live_, &waiting_, &active_sessions_, &waiting_sessions_, &session_limit_, &prefill_workers_,
      &decode_workers_;
  prometheus::Gauge &growing_, &references_, &announced_, &kept_, &kept_bytes_, &contexts_, &context_tokens_;
};

}  // namespace baton
