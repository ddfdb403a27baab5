// The engines of prefill and decode workers, driven in virtual time. The shells drive the same
// engines in real time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backend/simulated/simulated_backend.h"
#include "engine/decode/engine.h"
#include "engine/prefill/engine.h"
#include "kv/staging/store.h"
#include "simulator/disk.h"
#include "simulator/event_queue.h"
#include "simulator/network.h"
#include "simulator/process.h"

namespace baton {

// One step of a worker.
struct StepRecord {
  WorkerAddress worker{};
  absl::Time start{};
  absl::Duration time{};
  // Time before `start` in which the step copied staged KV in, and evicted KV out.
  absl::Duration copied{};
  int64_t tokens = 0;  // tokens computed
  // Tokens before the chunks of the batch, to which they attend, summed over all chunks.
  int64_t history = 0;
  friend bool operator==(const StepRecord&, const StepRecord&) = default;
};

// The state that all parts of a simulated cluster share.
struct SimulatorCore {
  EventQueue queue{};
  EventTrace trace{queue};
  FaultInjector faults;
  SimulatedNetwork network;
  std::vector<StepRecord> steps{};
  explicit SimulatorCore(NetworkShape shape) : faults(shape.seed, queue), network(shape, queue, faults, trace) {}
};

// Events of a worker's process are passed to `process`. The other methods are events themselves.

class SimulatedDecode {
 public:
  struct Options {
    DecodeEngineOptions engine;
    ModelConfig model;
    DeviceShape device;
    uint64_t weights = 0;  // see SimulatedBackend
    // Duration of every step. If unset, the roofline of the device determines the duration.
    std::optional<absl::Duration> step_time{};
    // Sends events to the router, over the network.
    std::function<void(DecodeEvents)> send{};
  };
  SimulatedDecode(WorkerAddress address, Options options, SimulatorCore& core);

  SimulatedProcess& process() { return process_; }
  const WorkerAddress& address() const { return address_; }
  // Names this process's memory for connections.
  const std::string& descriptor() const { return options_.engine.handoff.transport_descriptor; }

  // Handlers of incoming messages. Deliver passes a message of the hand-off to the engine and
  // returns the reply.
  template <typename Handle>
  auto Deliver(Handle handle) {
    auto reply = handle(engine_.handoff(), core_.queue.Now());
    Wake();
    return reply;
  }
  void Start(DecodeJob job);
  void Cancel(const RequestId& id);
  // As HandoffReceiver::Keep.
  void Keep(RouterStream router, KeepRoom request);

  SimulatedBackend& backend() { return backend_; }
  const DecodeEngine& engine() const { return engine_; }

 private:
  void Wake();
  void BeginStep();
  void FinishStep(DecodeStep& step, absl::Duration took);
  void SendEvents();
  void ArmTimer();

  const WorkerAddress address_;
  Options options_;
  SimulatorCore& core_;
  SimulatedProcess process_;
  SimulatedBackend backend_;
  DecodeEngine engine_;
  SamplerScratch scratch_;
  bool woken_ = false, stepping_ = false;
  WakeUp timer_;
};

class SimulatedPrefill {
 public:
  struct Options {
    PrefillEngineOptions engine;
    ModelConfig model;
    DeviceShape device;
    uint64_t weights = 0;  // see SimulatedBackend
    // Returns the process that runs at an address. Null if there is none.
    std::function<SimulatedDecode*(const WorkerAddress&)> reach{};
    // Send messages to the router, over the network.
    std::function<void(PrefillStarted)> started{};
    std::function<void(PrefillDone)> done{};
    std::function<void(RequestFailed)> failed{};
  };
  SimulatedPrefill(WorkerAddress address, Options options, SimulatorCore& core);

  // Handlers of incoming messages.
  void Submit(PrefillJob job);
  void Append(PrefillAppend append);
  void Cancel(const RequestId& id);
  void EndLeases(LeaseHolder holder);

  SimulatedProcess& process() { return process_; }
  SimulatedDisk& disk() { return disk_; }
  const PrefillEngine& engine() const { return engine_; }

 private:
  void Apply(absl::FunctionRef<void(PrefillEngine&, absl::Time now)> event);
  void Wake();
  void BeginStep();
  void Copy(const Batch& batch);
  void Compute(const Batch& batch, absl::Duration copied);
  void RunLayer(size_t step, int64_t layer);
  void Finish();
  void ArmTimer();
  void Transfer(const DiskTransfer& transfer);
  template <typename Reply, typename Handle, typename Answer>
  void Call(const WorkerAddress& to, std::string_view name, const RequestId& request, Handle handle, Answer answer);
  void Land(const std::vector<BlockCopy>& copies, SimulatedBackend& target) const;
  // Ends a push, unless it has ended.
  void EndPush(PushId push, const absl::Status& status);

  void Do(SendLink action);
  void Do(OpenConnection action);
  void Do(CloseConnection action);
  void Do(const ForgetPeer&) {}
  void Do(const DigestBlocks&) { BATON_CHECK(false, "no simulated decode worker wants digests"); }
  void Do(SendReserve action);
  void Do(SendCommit action);
  void Do(SendRelease action);
  void Do(SendHeartbeat action);
  void Do(PushBlocks action);
  void Do(PrefillStarted action) { options_.started(std::move(action)); }
  void Do(PrefillDone action) { options_.done(std::move(action)); }
  void Do(RequestFailed action) { options_.failed(std::move(action)); }

  const WorkerAddress address_;
  Options options_;
  SimulatorCore& core_;
  SimulatedProcess process_;
  SimulatedBackend backend_;
  PrefillEngine engine_;
  // Null if the worker stages no KV.
  const std::unique_ptr<StagingStore> staging_;
  SimulatedDisk disk_;
  // A connection to a decode worker's memory. Writes that are under way when it closes may land
  // until kLateWrites later.
  struct Connection {
    SimulatedDecode& peer;
    absl::Time closed = absl::InfiniteFuture();
  };
  std::map<LinkId, std::shared_ptr<Connection>> connections_;
  std::map<PushId, LinkId> pushes_;  // in flight
  bool woken_ = false, stepping_ = false;
  WakeUp timer_;
};

}  // namespace baton
