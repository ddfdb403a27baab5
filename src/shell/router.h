// The router's shell. It drives Dispatcher with a clock and gRPC streams to the workers.
// Thread-safe.
//
// Events change the dispatcher under one lock. Under that lock, nothing is serialised and no sink
// is called. Commands go to the outbox of their worker's stream, and updates to the outbox of their
// client. The thread of the event drains both after it has released the lock. An alarm sleeps until
// the next time at which something is due.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/step_loop.h"
#include "request/agent_sums.h"
#include "router/dispatcher.h"
#include "shell/outbox.h"
#include "shell/router_metrics.h"
#include "shell/vllm_metrics.h"
#include "shell/worker_link.h"
#include "worker.grpc.pb.h"

namespace baton {

// The client of a request. Calls arrive in order, one at a time, and must not block. The router
// holds no lock during a call.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void OnCharge(const RequestCharge&) {}
  virtual void OnUpdate(TokenUpdate update) = 0;
  virtual void OnEnd(const RequestOutcome& outcome) = 0;  // called once, as the last call
};

class Router {
 public:
  struct Options {
    std::vector<WorkerAddress> prefill_workers;
    std::vector<WorkerAddress> decode_workers;
    RouterLimits limits;
    AgentLimits agents{};
    ValueLimits values{};
    std::optional<WorkloadOptions> shortest_first{};  // unset: first come, first served
    std::optional<SessionLimits> sessions{};          // unset: no limit on active sessions
    bool shadow_prefill = true;
    // Models whose series exist from the start. Other models get series later. Unset: no vLLM
    // metrics.
    std::optional<std::vector<std::string>> vllm_metrics{};
  };
  Router(Options options, const Clock& clock, const ChannelFactory& channels, Metrics& metrics);
  ~Router();  // ends live requests with UNAVAILABLE and closes all streams

  // Submits a request. If this succeeds, the sink receives one OnEnd. REQUIRES: the request has an
  // id.
  absl::StatusOr<RequestTicket> Submit(ClientRequest request, std::shared_ptr<RequestSink> sink);
  // A request was refused before Submit (Dispatcher::Refused).
  void Refused(const RefusedRequest& request);
  // As Dispatcher::ChangeValues. A sink is called without a lock, after `change` has returned.
  absl::Status ChangeValues(absl::FunctionRef<absl::Status(Values& values, absl::Time now)> change);
  // Returns RESOURCE_EXHAUSTED if every request of the tenant would be refused now for lack of a
  // request slot and of room to wait for one.
  absl::Status CheckSlots(const std::string& tenant) const;
  // Returns the expected length of the request's output, as learned by now.
  int32_t ExpectedTokens(const ClientRequest& request) const;
  // Prefills a prefill hint of `call`, as Dispatcher::AddPrefillHint. Returns whether the hint was
  // accepted. The hint's end, or its refusal, is counted.
  bool AddPrefillHint(const RequestTicket& call, ClientRequest prompt);
  // Does nothing if the request has ended.
  void Cancel(const RequestTicket& ticket, CallEnd why = CallEnd::kCancelled);
  // As Dispatcher::Fail.
  void Fail(const RequestTicket& ticket, const absl::Status& status);
  // Cancels the live requests of a workflow (Dispatcher::CancelWorkflow). Returns how many there
  // were. INVALID_ARGUMENT: the name is empty.
  absl::StatusOr<int32_t> CancelWorkflow(const std::string& workflow, const std::string& cache_domain);
  // Detaches the request, because its client has stopped reading. The request is cancelled once no
  // client's request waits for its output, which may be at once.
  void Detach(const RequestTicket& ticket);
  // Ends all live requests with UNAVAILABLE.
  void EndAll();

  // Sets the workers of a role. A worker that is not in the new list stays attached, and still
  // receives requests, until its stream ends. The router does not end the stream: the worker ends
  // it when it shuts down.
  void SetWorkers(WorkerRole role, const std::vector<WorkerAddress>& addresses);

  // Drains a worker, or ends that (RouterCore::Drain). Returns the number of this router's requests
  // that the worker still has. NOT_FOUND: the router has no worker with this configured address.
  absl::StatusOr<int32_t> Drain(const WorkerAddress& worker, bool drained);

  // Returns OK if this model has a prefill worker and a decode worker that share KV. A worker that
  // drained and left less than RouterLimits::restart_wait ago counts as present. Otherwise returns
  // the error of WorkerRegistry::Readiness.
  absl::Status Readiness(const std::string& model) const;
  // The latest requests of a workflow, live or recently ended, in order of arrival. At most
  // kMostTraced, and RefusalLimits::of_workflow refused ones in addition.
  struct Trace {
    Timeline::Lives lives;
    int32_t omitted = 0;            // number of earlier requests that are left out
    int32_t refused_omitted = 0;    // number of earlier refused ones that are left out
    std::vector<AgentSums> agents;  // over all recorded requests
    absl::Time now;
  };
  static constexpr size_t kMostTraced = 512;
  // Returns NOT_FOUND if no request of the workflow is recorded.
  absl::StatusOr<Trace> TraceOf(const std::string& workflow, const std::string& cache_domain);
  // Returns the latest workflows of a cache domain, the latest first, at most kMostWorkflows.
  static constexpr size_t kMostWorkflows = 64;
  struct Workflows {
    std::vector<WorkflowView> views;
    absl::Time now;
  };
  Workflows WorkflowsOf(const std::string& cache_domain);
  struct Sessions {
    SessionGate::Counts counts;
    int64_t limit = 0;                      // 0 if there is no limit
    std::vector<SessionGate::View> latest;  // at most kMostSessions
  };
  static constexpr size_t kMostSessions = 64;
  Sessions sessions() const;
  RouterMetrics& metrics() { return metrics_; }
  const RouterMetrics& metrics() const { return metrics_; }
  struct WorkerView {
    WorkerRole role;
    WorkerAddress link;
    std::optional<AttachedWorker> attached;
    std::string problem;  // WorkerLink::problem, if the worker is not attached
  };
  std::vector<WorkerView> Workers() const;
  std::vector<WorkerRegistry::Decoder> Decoders() const;
  int32_t live_requests() const;
  int32_t waiting_requests() const;
  // Returns the number of times that the alarm has rung.
  int64_t ticks() const;

 private:
  using PrefillLink = WorkerLink<worker::v1::PrefillWorker, worker::v1::PrefillCommand, worker::v1::PrefillEvent>;
  using DecodeLink = WorkerLink<worker::v1::DecodeWorker, worker::v1::DecodeCommand, worker::v1::DecodeEvent>;
  // The work that an event leaves for the time after the lock is released.
  struct Work {
    std::vector<std::shared_ptr<Drainable>> outboxes;
    std::vector<absl::StatusCode> prefill_hints;  // status codes of prefill hints that ended
    std::vector<ValueEnded> values;
    std::vector<WorkerWatch::Change> health;
  };
  using ClientEvent = std::variant<RequestCharge, RequestProgress, RequestEnded>;
  using ClientOutbox = Outbox<ClientEvent>;

  void OnPrefillEvent(const WorkerAddress& link, worker::v1::PrefillEvent& event);
  void OnDecodeEvent(const WorkerAddress& link, worker::v1::DecodeEvent& event);
  void OnLost(const WorkerAddress& link);
  absl::Status Attach(const WorkerAddress& link, WorkerRole role, const worker::v1::WorkerInfo& info);
  void OnLoad(const WorkerAddress& link, const worker::v1::Load& load);
  void OnPrefillStarted(const WorkerAddress& link, const PrefillStarted& started);
  void OnPrefillDone(const WorkerAddress& link, PrefillDone done);
  void OnFailed(const WorkerAddress& link, const RequestFailed& failed);
  void OnRoom(const WorkerAddress& link, const worker::v1::Room& room);
  void OnUpdates(const WorkerAddress& link, worker::v1::StepUpdates& step);
  // Each returns the time at which it is due again.
  absl::Time Tick();
  absl::Time TickLinks();
  void Refuse(const WorkerAddress& link, const absl::Status& why);

  // Applies `event` to the dispatcher, and carries out the actions that follow.
  void Drive(absl::FunctionRef<void(Dispatcher& dispatcher, absl::Time now)> event);
  // REQUIRES for these functions: the caller holds the lock.
  Work Act();
  static void AddEvent(const std::shared_ptr<ClientOutbox>& client, ClientEvent event, Work& work);
  void Post(WorkerCommand command, Work& work);
  // REQUIRES for these functions: the caller does not hold the lock.
  void Finish(Work work);
  void Deliver(RequestSink& sink, ClientEvent& event);

  const Clock& clock_;
  RouterMetrics metrics_;
  std::optional<VllmMetrics> vllm_metrics_;
  // Guards the members below. It is the standard library's, because ThreadSanitizer does not see
  // into Debian's build of absl::Mutex.
  mutable std::mutex mutex_;
  Dispatcher dispatcher_;
  absl::Time next_tick_ = absl::InfinitePast();  // the time at which the alarm rings
  int64_t ticks_ = 0;
  // Clients of live requests, by the number of their ticket.
  absl::flat_hash_map<uint64_t, std::shared_ptr<ClientOutbox>> clients_;

  // Streams to workers that may be attached. They call back into the router from their threads, so
  // they are stopped before they are removed, and without the lock.
  template <typename Link>
  struct Reached {
    std::shared_ptr<Link> link;
    bool named = true;  // the worker is in the last list of SetWorkers
  };
  template <typename Link>
  using Links = absl::btree_map<WorkerAddress, Reached<Link>>;
  template <typename Link>
  void Name(WorkerRole role, const std::vector<WorkerAddress>& addresses, const typename Link::Handlers& handlers,
            Links<Link>& links, std::set<WorkerAddress>& named_twice);
  template <typename Link>
  std::vector<std::shared_ptr<Link>> Unneeded(Links<Link>& links);
  template <typename Link>
  absl::Time TickLinks(Links<Link>& links);
  template <typename Link, typename What>
  static void PostTo(Links<Link>& links, const WorkerAddress& worker, What& what, Work& work);
  Links<PrefillLink> prefill_links_;
  Links<DecodeLink> decode_links_;
  // Addresses of the last list that already belong to the other role. Each is logged once.
  std::set<WorkerAddress> prefill_named_twice_, decode_named_twice_;
  const ChannelFactory channels_;
  // Streams that are stopped and no longer used. The alarm's thread destroys each one once no other
  // thread drains it, because gRPC's threads must not destroy a channel. Only the alarm uses this
  // member.
  std::vector<std::shared_ptr<void>> retired_;
  StepLoop alarm_;          // its thread uses all members above
  Metrics::Reader reader_;  // last, so that it is destroyed first: it reads the dispatcher
};

}  // namespace baton
