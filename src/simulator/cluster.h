// Router, prefill and decode workers of one model in one process and in virtual time. Every figure is simulated.
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
#include "absl/status/statusor.h"
#include "backend/simulated/cost_model.h"
#include "simulator/letter_tokenizer.h"
#include "simulator/router.h"
#include "simulator/workers.h"

namespace baton {

// A prefill module and the decoders that go on from its KV, each with a worker of its own.
struct GroupShape {
  std::string module{};
  int32_t prefill_workers = 1;
  std::vector<std::string> decoders{};  // one that is called as the module has its weights, the others have their own
};

struct ClusterShape {
  ModelConfig model{};
  DeviceShape device{};  // of each worker
  NetworkShape network{};
  int32_t prefill_workers = 1;
  // Served as kModel by as many workers at the device's speed, and as kPaced by one of which every step takes `pace`.
  int32_t decode_workers = 1;
  std::optional<absl::Duration> pace{};
  // Where there are any, they are all that is served.
  std::vector<GroupShape> groups{};
  std::optional<int64_t> blocks{};     // of each worker; unset: as many as the device holds beside the model
  int64_t host_blocks = 0;             // of each prefill worker, for KV that is evicted
  int64_t step_tokens = 512;           // see PrefillEngineOptions
  int32_t max_batch = 64;              // of a decode worker, see DecodeEngineOptions
  std::optional<int64_t> increment{};  // the same; unset: as learned from steps
  absl::Duration open_step = PrefillEngineOptions{}.open_step;  // the same
  std::optional<WorkloadOptions> shortest_first{};              // unset: first come first served
  std::optional<SessionLimits> sessions{};                      // unset: any number is active
  Routing routing = Routing::kPinned;
  bool shadow_prefill = true;
};

class SimulatedCluster {
 public:
  static constexpr const char* kModel = "model";
  static constexpr const char* kPaced = "paced";

  // INVALID_ARGUMENT: the model does not fit onto the device.
  static absl::StatusOr<std::unique_ptr<SimulatedCluster>> Create(ClusterShape shape);

  // How a request went, as its client saw it.
  struct Ran {
    absl::Time submitted{};
    absl::Time first = absl::InfiniteFuture(), ended = absl::InfiniteFuture();
    std::vector<TokenId> tokens{};
    absl::Status status{};
    int32_t prompt_tokens = 0, cached_tokens = 0;  // as in RequestOutcome
  };
  // Sends it now, on the connection of client number `client`. `ended`, which may be null, is called when it knows.
  void Submit(size_t client, SimulatedRequest request, std::function<void()> ended);
  const Ran& ran(const RequestId& id) const { return ran_.at(id); }
  // Its client cancels it now. Harmless once it has ended.
  void Cancel(const RequestId& id);
  // The stream between the router and this worker breaks: both end what came by it. It attaches again at once.
  void BreakStream(const WorkerAddress& worker);
  // A prefill worker's process dies with all that it holds, and is started again, empty.
  void Kill(const WorkerAddress& prefill);
  void Restart(const WorkerAddress& prefill) { StartPrefill(prefill, infos_.at(prefill).model); }

  // What a client does then. RunUntilIdle runs until it is done.
  void After(absl::Duration wait, EventQueue::Event event);
  // Runs until nothing has to happen but what waits for time: leases, kept outputs.
  void RunUntilIdle();
  void RunFor(absl::Duration time);
  absl::Time Now() const { return core_.queue.Now(); }
  const std::vector<StepRecord>& steps() const { return core_.steps; }
  // Of all workers, still referenced or quarantined. REQUIRES: idle; all else is CHECKed.
  int64_t BlocksHeld() const;
  SessionGate::Counts Sessions() const { return router_.sessions(); }
  int64_t HostTokens() const;  // brought back from host memory, by the prefill workers that live
  // Hand-offs of the prefill workers that live, by result. RESOURCE_EXHAUSTED: a decode worker had no room.
  std::map<absl::StatusCode, int64_t> HandoffsEnded() const;
  int64_t BytesPushed() const { return core_.network.pushed(); }  // by all prefill workers

 private:
  explicit SimulatedCluster(ClusterShape shape);
  void StartPrefill(const WorkerAddress& address, const std::string& module);
  struct Decoder {
    std::string model, module;
    bool makes_same_kv = true;  // has the module's weights
    std::optional<absl::Duration> pace{};
  };
  void AddDecode(const WorkerAddress& address, const Decoder& decoder);
  WorkerInfo InfoOf(const WorkerAddress& address, const std::string& model, const std::string& module, WorkerRole role);
  std::vector<ServedModel> Models() const;
  SimulatedRouter::Outlets RouterOutlets();
  void ArmRouter();
  // A message on the stream between the router and a worker.
  void Tell(const WorkerAddress& worker, EventQueue::Event arrive);
  void Command(WorkerCommand command);
  void Do(const WorkerAddress& worker, PrefillJob job);
  void Do(const WorkerAddress& worker, PrefillAppend append) { prefills_.at(worker)->Append(std::move(append)); }
  void Do(const WorkerAddress& worker, DecodeJob job);
  void Do(const WorkerAddress& worker, const CancelJob& cancel);
  EventQueue::Event OnStream(const WorkerAddress& worker, EventQueue::Event arrive);

  const ClusterShape shape_;
  const int64_t blocks_;  // of each worker
  LetterTokenizer tokenizer_;
  SimulatorCore core_;
  absl::btree_map<WorkerAddress, std::unique_ptr<SimulatedPrefill>> prefills_;
  std::vector<std::unique_ptr<SimulatedPrefill>> dead_;  // until what was to happen to them is over
  absl::btree_map<WorkerAddress, std::unique_ptr<SimulatedDecode>> decodes_;
  SimulatedRouter router_;
  WakeUp timer_;  // the router's
  uint64_t incarnations_ = 0;
  int64_t to_come_ = 0;  // events of After
  std::map<WorkerAddress, WorkerInfo> infos_;
  std::map<WorkerAddress, int64_t> streams_;           // how many have broken
  std::map<WorkerAddress, std::set<RequestId>> jobs_;  // that came by the present stream, as the worker calls them
  std::map<RequestId, Ran> ran_;
  struct Live {
    WorkerAddress client;
    std::function<void()> ended;
  };
  std::map<RequestId, Live> live_;
};

}  // namespace baton
