// The router's shell: drives RouterCore with gRPC streams to the workers and a steady clock. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "agent/agent_graph.h"
#include "agent/context_store.h"
#include "base/clock.h"
#include "engine/request.h"
#include "router/router_core.h"
#include "router/timeline.h"
#include "router/workload.h"
#include "server/periodic_task.h"
#include "server/request_reader.h"
#include "server/router_metrics.h"
#include "server/worker_link.h"
#include "worker.grpc.pb.h"

namespace baton {

// How a request went, for its client.
struct RequestOutcome {
  absl::Status status;
  absl::Duration retry_after;  // zero: unknown
  FinishReason finish = FinishReason::kStop;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
  absl::Duration upstream, queue, prefill, handoff, first_token, total;  // as in baton.v1.Timings
  KvLease context;                                                       // what is kept of the context that it used
};

// Tells a request from others that had its id before.
struct RequestTicket {
  RequestId id;
  uint64_t number = 0;
};

// Who waits for a request. Calls come in order and must not block; none holds a lock of the router. After OnEnd, an
// update may still come late: it is to be dropped.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void OnUpdate(TokenUpdate update) = 0;
  virtual void OnEnd(const RequestOutcome& outcome) = 0;  // once
};

class Router {
 public:
  struct Options {
    std::vector<WorkerAddress> prefill_workers;
    std::vector<WorkerAddress> decode_workers;
    RouterLimits limits;
    AgentLimits agents{};
    std::optional<WorkloadOptions> shortest_first{};  // unset: first come first served
  };
  Router(Options options, const Clock& clock, const ChannelFactory& channels, Metrics& metrics);
  ~Router();  // ends what is live with UNAVAILABLE and closes all streams

  // The sink is told the end unless this fails. The request must have an id.
  absl::StatusOr<RequestTicket> Submit(ClientRequest request, std::shared_ptr<RequestSink> sink);
  // Nothing if it is over.
  void Cancel(const RequestTicket& ticket);
  // Its client takes no more of it. It is cancelled, unless other requests wait for its output.
  void LetGo(const RequestTicket& ticket);
  // Ends everything that is live, with UNAVAILABLE.
  void EndAll();

  // OK if a Generate for this model would find workers now; else what is missing.
  absl::Status Readiness(const std::string& model) const;
  // The latest requests of a tenant's workflow, live or lately over, by arrival; at most kMostTraced.
  struct Trace {
    Timeline::Lives lives;
    int32_t omitted = 0;  // earlier ones
    absl::Time now;
  };
  static constexpr size_t kMostTraced = 512;
  // NOT_FOUND: none is known.
  absl::StatusOr<Trace> TraceOf(const std::string& workflow, const std::string& tenant);
  struct WorkerView {
    WorkerRole role;
    WorkerAddress link;
    std::optional<AttachedWorker> attached;
  };
  std::vector<WorkerView> Workers() const;
  std::vector<RouterCore::Decoder> Decoders() const;
  int32_t live_requests() const;
  int32_t waiting_requests() const;

 private:
  using PrefillLink = WorkerLink<worker::v1::PrefillWorker, worker::v1::PrefillCommand, worker::v1::PrefillEvent>;
  using DecodeLink = WorkerLink<worker::v1::DecodeWorker, worker::v1::DecodeCommand, worker::v1::DecodeEvent>;
  struct Record {
    ClientRequest request;
    uint64_t number = 0;  // of its ticket
    // What workers call it, drawn when a prefill worker is told: while they clear up after a request, its id may come
    // again, here or by another router, or the request itself, placed anew.
    RequestId worker_id;
    std::shared_ptr<RequestSink> sink;
    absl::Time arrived;
    absl::Time complete;  // the prompt
    absl::Time last_update;
    absl::Time placed = absl::InfiniteFuture(), prefilled = absl::InfiniteFuture();  // as in RequestLife
    std::vector<RequestId> upstreams;                                                // of a request with a workflow
    size_t sent = 0;       // tokens of a growing prompt that its prefill worker has
    bool restart = false;  // what it has is void
    absl::Duration queue, first_token;
    std::optional<PrefillDone> done;
    WorkerAddress prefilled_by;
    std::optional<FinishReason> finish;
    int32_t completion_tokens = 0;
  };
  // What sinks are told once the lock is released.
  struct Delivery {
    std::shared_ptr<RequestSink> sink;
    std::variant<TokenUpdate, RequestOutcome> what;
  };
  using Deliveries = std::vector<Delivery>;

  void OnPrefillEvent(const WorkerAddress& link, const worker::v1::PrefillEvent& event);
  void OnDecodeEvent(const WorkerAddress& link, const worker::v1::DecodeEvent& event);
  void OnLost(const WorkerAddress& link);
  absl::Status Attach(const WorkerAddress& link, WorkerRole role, const worker::v1::WorkerInfo& info);
  void OnLoad(const WorkerAddress& link, const worker::v1::Load& load);
  void OnPrefillDone(const WorkerAddress& link, PrefillDone done);
  void OnFailed(const WorkerAddress& link, const RequestFailed& failed);
  void OnUpdates(const WorkerAddress& link, const worker::v1::StepUpdates& step);
  void Tick();

  // Puts a new request, whose record is there, into graph and core. No route: its prompt is not complete.
  absl::Status Enter(const RequestId& id, std::optional<RouteRequest> route, absl::Time now);
  absl::Status SubmitToCore(RouteRequest route, absl::Time now);
  // For the worker that is given the request now.
  absl::Duration Handicap(const RequestId& id) const;
  void Act(PromptGrew& grew);
  void Act(PromptRestarted& restarted);
  void Act(PromptFailed& failed);

  // The live request that a worker means; null if it is over.
  Record* Find(const RequestId& worker_id);

  // Carries out what the core decided. All with the lock held, except Deliver.
  void Act(Deliveries& deliveries);
  void Act(const RouterAction& action, Deliveries& deliveries);
  void StartPrefill(const RouterAction& action);
  void AppendPrompt(const RouterAction& action);
  void StartDecode(const RouterAction& action);
  void SendCancel(const RouterAction& action);
  void End(const RouterAction& action, Deliveries& deliveries);
  static void Deliver(Deliveries deliveries);

  static std::vector<RequestId> UpstreamsOf(const ClientRequest& request);  // each once
  static RequestLife LifeOf(const Record& record);

  const Clock& clock_;
  const uint64_t nonce_;  // of this router, in what workers call its requests
  RouterMetrics metrics_;
  // The standard library's, because ThreadSanitizer does not see into Debian's build of absl::Mutex. Guards what
  // follows.
  mutable std::mutex mutex_;
  RouterCore core_;
  AgentGraph graph_;                  // of the same requests, and those lately over
  std::optional<Workload> workload_;  // of the same requests, where these are scheduled by it
  ContextStore contexts_{ContextLimits()};
  absl::flat_hash_map<RequestId, Record> records_;  // of live requests
  Timeline timeline_{TimelineLimits{}};             // of those with a workflow that are over
  uint64_t submitted_ = 0, attempts_ = 0;

  // Fixed after construction. Their threads call back into this, so they are stopped first.
  absl::btree_map<WorkerAddress, std::unique_ptr<PrefillLink>> prefill_links_;
  absl::btree_map<WorkerAddress, std::unique_ptr<DecodeLink>> decode_links_;
  std::optional<PeriodicTask> ticker_;
};

}  // namespace baton
