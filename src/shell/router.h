// The router's shell: drives Dispatcher with gRPC streams to the workers and a clock. Thread-safe.
//
// Events change the dispatcher under one lock. Under that lock nothing is serialised and no sink is called: commands go
// to an outbox of their worker's link, and updates to an outbox of their client. The thread of the event drains both
// after it has released the lock. An alarm sleeps until the next time at which something is due.
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
#include "router/dispatcher.h"
#include "shell/outbox.h"
#include "shell/router_metrics.h"
#include "shell/vllm_metrics.h"
#include "shell/worker_link.h"
#include "worker.grpc.pb.h"

namespace baton {

// The client of a request. Calls come in order, one at a time, and must not block. The router holds no lock meanwhile.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void OnUpdate(TokenUpdate update) = 0;
  virtual void OnEnd(const RequestOutcome& outcome) = 0;  // once, last
};

class Router {
 public:
  struct Options {
    std::vector<WorkerAddress> prefill_workers;
    std::vector<WorkerAddress> decode_workers;
    RouterLimits limits;
    AgentLimits agents{};
    std::optional<WorkloadOptions> shortest_first{};  // unset: first come first served
    std::optional<SessionLimits> sessions{};          // unset: any number is active
    bool shadow_prefill = true;
    std::optional<std::vector<std::string>> vllm_metrics{};  // of these models and others; unset: none
  };
  Router(Options options, const Clock& clock, const ChannelFactory& channels, Metrics& metrics);
  ~Router();  // ends what is live with UNAVAILABLE and closes all streams

  // The sink is told the end unless this fails. The request must have an id.
  absl::StatusOr<RequestTicket> Submit(ClientRequest request, std::shared_ptr<RequestSink> sink);
  // As Dispatcher::Follow: whether it took it. What becomes of it is counted.
  bool Follow(const RequestTicket& call, ClientRequest prompt);
  // Nothing if it is over.
  void Cancel(const RequestTicket& ticket);
  // Its client takes no more of it. It is cancelled, unless other requests wait for its output.
  void LetGo(const RequestTicket& ticket);
  // Ends everything that is live, with UNAVAILABLE.
  void EndAll();

  // From now on these are the workers of a role. One that is not among them any more stays as it is until its stream
  // ends, which is when it has finished what it has, and is then let go.
  void SetWorkers(WorkerRole role, const std::vector<WorkerAddress>& addresses);

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
  // The latest workflows of a tenant, the latest first; at most kMostWorkflows.
  static constexpr size_t kMostWorkflows = 64;
  struct Workflows {
    std::vector<WorkflowView> views;
    absl::Time now;
  };
  Workflows WorkflowsOf(const std::string& tenant);
  struct Sessions {
    SessionGate::Counts counts;
    int64_t limit = 0;                      // 0: none
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
  };
  std::vector<WorkerView> Workers() const;
  std::vector<WorkerRegistry::Decoder> Decoders() const;
  int32_t live_requests() const;
  int32_t waiting_requests() const;
  // Times that the alarm has rung since the start.
  int64_t ticks() const;

 private:
  using PrefillLink = WorkerLink<worker::v1::PrefillWorker, worker::v1::PrefillCommand, worker::v1::PrefillEvent>;
  using DecodeLink = WorkerLink<worker::v1::DecodeWorker, worker::v1::DecodeCommand, worker::v1::DecodeEvent>;
  // What an event leaves to do once the lock is released.
  struct Work {
    std::vector<std::shared_ptr<Drainable>> outboxes;
    std::vector<absl::StatusCode> followers;  // that ended
  };
  using ClientEvent = std::variant<RequestProgress, RequestEnded>;
  using ClientOutbox = Outbox<ClientEvent>;

  void OnPrefillEvent(const WorkerAddress& link, worker::v1::PrefillEvent& event);
  void OnDecodeEvent(const WorkerAddress& link, worker::v1::DecodeEvent& event);
  void OnLost(const WorkerAddress& link);
  absl::Status Attach(const WorkerAddress& link, WorkerRole role, const worker::v1::WorkerInfo& info);
  void OnLoad(const WorkerAddress& link, const worker::v1::Load& load);
  void OnPrefillDone(const WorkerAddress& link, PrefillDone done);
  void OnFailed(const WorkerAddress& link, const RequestFailed& failed);
  void OnRoom(const WorkerAddress& link, const worker::v1::Room& room);
  void OnUpdates(const WorkerAddress& link, worker::v1::StepUpdates& step);
  // Each returns when it is due again.
  absl::Time Tick();
  absl::Time TickLinks();
  void Refuse(const WorkerAddress& link, const absl::Status& why);

  // Lets `event` happen, and carries out what follows from it.
  void Drive(absl::FunctionRef<void(Dispatcher& dispatcher, absl::Time now)> event);
  // With the lock held.
  Work Act();
  static void AddEvent(const std::shared_ptr<ClientOutbox>& client, ClientEvent event, Work& work);
  void Post(WorkerCommand command, Work& work);
  // Without it.
  void Finish(Work work);
  void Deliver(RequestSink& sink, ClientEvent& event);

  const Clock& clock_;
  RouterMetrics metrics_;
  std::optional<VllmMetrics> vllm_metrics_;
  // The standard library's, because ThreadSanitizer does not see into Debian's build of absl::Mutex. Guards what
  // follows.
  mutable std::mutex mutex_;
  Dispatcher dispatcher_;
  absl::Time next_tick_ = absl::InfinitePast();  // when the alarm rings
  int64_t ticks_ = 0;
  absl::flat_hash_map<uint64_t, std::shared_ptr<ClientOutbox>> clients_;  // of live requests, by number of their ticket

  // A worker's link is here as long as it may be attached. Links' threads call back into this: they are stopped first,
  // and without the lock.
  template <typename Link>
  struct Reached {
    std::shared_ptr<Link> link;
    bool named = true;  // the worker still is one
  };
  template <typename Link>
  using Links = absl::btree_map<WorkerAddress, Reached<Link>>;
  template <typename Link>
  void Name(const std::vector<WorkerAddress>& addresses, const typename Link::Handlers& handlers, Links<Link>& links,
            std::set<WorkerAddress>& named_twice);
  template <typename Link>
  std::vector<std::shared_ptr<Link>> Unneeded(Links<Link>& links);
  template <typename Link>
  absl::Time TickLinks(Links<Link>& links);
  template <typename Link, typename What>
  static void PostTo(Links<Link>& links, const WorkerAddress& worker, What& what, Work& work);
  Links<PrefillLink> prefill_links_;
  Links<DecodeLink> decode_links_;
  // Those of the last list that are workers of the other role; told once.
  std::set<WorkerAddress> prefill_named_twice_, decode_named_twice_;
  const ChannelFactory channels_;
  // Links that are in use no more, and stopped. Each is destroyed on the alarm's thread once no other thread drains it:
  // gRPC's threads must not destroy a channel. Used by the alarm alone.
  std::vector<std::shared_ptr<void>> retired_;
  StepLoop alarm_;          // its thread uses all of the above
  Metrics::Reader reader_;  // last: the first to go, since it reads the dispatcher
};

}  // namespace baton
