// A simulated cluster of a router, prefill workers and decode workers. All run in one process and
// in virtual time, so every duration is simulated.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "backend/simulated/cost_model.h"
#include "simulator/letter_tokenizer.h"
#include "simulator/router.h"
#include "simulator/worker_link.h"
#include "simulator/workers.h"

namespace baton {

// A prefill module and the decoders that continue from its KV. Each decoder has a decode worker of
// its own.
struct GroupShape {
  std::string module{};
  int32_t prefill_workers = 1;
  // Names of the decoders. A decoder with the module's name has the module's weights. Every other
  // decoder has weights of its own.
  std::vector<std::string> decoders{};
};

struct ClusterShape {
  ModelConfig model{};
  DeviceShape device{};  // of each worker
  NetworkShape network{};
  int32_t prefill_workers = 1;
  // Decode workers that serve kModel at the device's speed. With `pace`, one more decode worker
  // serves kPaced, and each of its steps takes `pace`.
  int32_t decode_workers = 1;
  std::optional<absl::Duration> pace{};
  // If there are any groups, only their decoders are served.
  std::vector<GroupShape> groups{};
  // KV blocks of each worker. If unset, the number that the device holds beside the model.
  std::optional<int64_t> blocks{};
  // KV blocks of the decode workers that serve kModel. Those beyond its end have `blocks`.
  std::vector<int64_t> decode_blocks{};
  // Blocks of host memory for evicted KV, per prefill worker.
  int64_t host_blocks = 0;
  int64_t disk_blocks = 0;    // the same for a disk behind it
  int64_t step_tokens = 512;  // see PrefillEngineOptions
  // See DecodeEngineOptions.
  int32_t max_batch = 64;
  // See PrefillEngineOptions. If unset, derived from measured steps.
  std::optional<int64_t> increment{};
  absl::Duration streaming_step = PrefillEngineOptions{}.streaming_step;
  // If unset, first come, first served.
  std::optional<WorkloadOptions> shortest_first{};
  // If unset, any number of sessions may be active.
  std::optional<SessionLimits> sessions{};
  Routing routing = Routing::kPinned;
  absl::Duration room_wait = RouterLimits{}.room_wait;
  int32_t live_requests = RouterLimits{}.live_requests, waiting_prompts = RouterLimits{}.waiting_prompts;
  bool shadow_prefill = true;
  // Workers report their loads to the router while requests are live. If false, no worker reports.
  // The published figures (bench/results) were made without reports.
  bool load_reports = true;
};

class SimulatedCluster {
 public:
  static constexpr const char* kModel = "model";
  static constexpr const char* kPaced = "paced";

  // Returns INVALID_ARGUMENT if the model does not fit into the device's memory.
  static absl::StatusOr<std::unique_ptr<SimulatedCluster>> Create(ClusterShape shape);

  // The result of a request, as its client saw it.
  struct Ran {
    WorkerAddress client{};
    absl::Time submitted{};
    absl::Time last_arrival{};  // of the router's messages; `submitted` before the first
    absl::Time first = absl::InfiniteFuture(), ended = absl::InfiniteFuture();
    std::vector<TokenId> tokens{};
    int32_t ends = 0;              // number of ends, which must be one
    absl::Duration longest_gap{};  // between two messages of the router, or before the first
    bool late_tokens = false;      // tokens arrived after an end
    absl::Status status{};
    // As in RequestOutcome.
    int32_t prompt_tokens = 0, cached_tokens = 0;
    StageTimes times{};
    absl::Duration total{};
    int32_t resumed = 0, moved = 0;
  };
  // Sends a request now, on the connection of client number `client`. The cluster calls `ended`
  // when the client receives the result. `ended` may be null.
  void Submit(size_t client, SimulatedRequest request, std::function<void()> ended);
  const Ran& ran(const RequestId& id) const { return ran_.at(id); }
  // Sends a cancellation from the request's client now. Does nothing if the request has ended.
  void Cancel(const RequestId& id);
  // Cancels a workflow now.
  void CancelWorkflow(const WorkflowKey& workflow);
  // A part of a value arrives at the router now. Returns the errors of Values.
  absl::Status Put(const SimulatedPart& part) { return router_.Put(part); }
  // Breaks the stream between the router and this worker. Router and worker end all requests of the
  // stream. The router attaches to the worker again.
  void BreakStream(const WorkerAddress& worker) { links_.at(worker)->Break(); }
  // Kill ends a worker's process, and all its state is lost. Restart starts an empty one. They do
  // nothing if the process has ended, or runs.
  void Kill(const WorkerAddress& worker);
  void Restart(const WorkerAddress& worker);
  // Begins a fault now.
  void Begin(const Fault& fault);

  // Schedules an action of a client. RunUntilIdle also waits for the action.
  void After(absl::Duration wait, EventQueue::Event event);
  // Runs until no request is live, no action of After is pending and all workers are idle. Timers
  // of leases and kept outputs may still be pending.
  void RunUntilIdle();
  void RunFor(absl::Duration time);
  absl::Time Now() const { return core_.queue.Now(); }
  const std::vector<StepRecord>& steps() const { return core_.steps; }
  // The blocks and places that running processes hold for requests.
  struct Holdings {
    int64_t blocks = 0;       // referenced blocks
    int64_t quarantined = 0;  // blocks
    int64_t prefill_requests = 0;
    int64_t decode_requests = 0;  // including reservations
    int64_t router_requests = 0;
    int64_t waiting_requests = 0;  // part of router_requests
    int64_t assignments = 0;       // of requests to workers, at the router
    friend bool operator==(const Holdings&, const Holdings&) = default;
  };
  // CHECKs the invariants of all components. REQUIRES: the cluster is idle.
  Holdings Held() const;
  // Returns the number of blocks that are referenced or quarantined, over all workers.
  int64_t BlocksHeld() const { return Held().blocks + Held().quarantined; }
  const SimulatedRouter& router() const { return router_; }
  // Prompt tokens that live prefill workers have read back from host memory.
  int64_t HostTokens() const;
  // REQUIRES: the worker's process runs.
  const PrefillEngine& PrefillAt(const WorkerAddress& worker) const { return prefills_.at(worker)->engine(); }
  // Returns the number of hand-offs of live prefill workers, by result. RESOURCE_EXHAUSTED means
  // that a decode worker had no room.
  std::map<absl::StatusCode, int64_t> HandoffsEnded() const;
  // Preemptions at live decode workers.
  int64_t Preemptions() const;
  // KV bytes that all prefill workers have pushed.
  int64_t BytesPushed() const { return core_.network.pushed(); }
  // Number of streams between the router and workers that have broken at the router.
  int StreamsLost() const { return streams_lost_; }
  EventTrace& trace() { return core_.trace; }

 private:
  explicit SimulatedCluster(ClusterShape shape);
  // Start a process at the address.
  void StartPrefill(const WorkerAddress& address, const std::string& module);
  struct Decoder {
    std::string model, module;
    // The decoder has the module's weights.
    bool makes_same_kv = true;
    std::optional<absl::Duration> pace{};
    std::optional<int64_t> blocks{};  // unset: as other workers
  };
  void StartDecode(const WorkerAddress& address, const Decoder& decoder);
  // Returns the event that attaches the worker at the router.
  template <typename Worker>
  EventQueue::Event Introduction(const Worker& worker, const WorkerInfo& info);
  SimulatedWorkerLink& LinkTo(const WorkerAddress& worker);
  WorkerInfo InfoOf(const WorkerAddress& address, const std::string& model, const std::string& module, WorkerRole role);
  std::vector<ServedModel> Models() const;
  SimulatedRouter::Outlets RouterOutlets();
  // Returns the request, to which the router's message has just arrived at its client.
  Ran& NoteArrival(const RequestId& id);
  void ArmRouter();
  // Lets all workers report their loads each kLoadPeriod until no request is live.
  void BeginReports();
  void ReportAfterPeriod();
  void ForEachLoad(absl::FunctionRef<void(const WorkerAddress&, const WorkerLoad&)> visit);
  void SendEvents(const WorkerAddress& worker, DecodeEvents events);
  void Command(WorkerCommand command);
  void Do(const WorkerAddress& worker, PrefillJob job);
  void Do(const WorkerAddress& worker, PrefillAppend append) { prefills_.at(worker)->Append(std::move(append)); }
  void Do(const WorkerAddress& worker, DecodeJob job) { decodes_.at(worker)->Start(std::move(job)); }
  void Do(const WorkerAddress& worker, const CancelJob& cancel);
  // The process at this address. Null if it has ended.
  SimulatedProcess* ProcessOf(const WorkerAddress& worker) const;

  const ClusterShape shape_;
  const int64_t blocks_;  // per worker
  LetterTokenizer tokenizer_;
  SimulatorCore core_;
  // The running processes.
  absl::btree_map<WorkerAddress, std::shared_ptr<SimulatedPrefill>> prefills_;
  absl::btree_map<WorkerAddress, std::shared_ptr<SimulatedDecode>> decodes_;
  // Killed processes. Kept because pending events refer to them.
  std::vector<std::shared_ptr<void>> ended_;
  SimulatedProcess router_process_;
  SimulatedRouter router_;
  WakeUp timer_;  // of the router
  uint64_t incarnations_ = 0;
  int64_t pending_events_ = 0;  // pending events of After
  int streams_lost_ = 0;
  bool reports_loads_ = false;  // a report is scheduled
  std::map<WorkerAddress, std::unique_ptr<SimulatedWorkerLink>> links_;
  // Starts an empty process at each address.
  std::map<WorkerAddress, std::function<void()>> starts_;
  std::map<RequestId, Ran> ran_;
  std::map<RequestId, std::function<void()>> live_;  // `ended` of Submit
};

}  // namespace baton
