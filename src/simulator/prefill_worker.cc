#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"
#include "simulator/workers.h"

namespace baton {
namespace {

// Makes a real store, whose slots hold the content of blocks of the simulated slab.
std::unique_ptr<StagingStore> MakeStaging(const StagingOptions& blocks, SimulatedBackend& backend) {
  if (blocks.host == 0) return nullptr;
  BATON_CHECK(blocks.disk == 0, "no disk is simulated");
  auto store = StagingStore::Create(blocks, SimulatedBackend::BlockBytes(), backend.slab());
  BATON_CHECK(store.ok(), store.status().ToString());
  return *std::move(store);
}

}  // namespace

SimulatedPrefill::SimulatedPrefill(WorkerAddress address, Options options, SimulatorCore& core)
    : address_(std::move(address)),
      options_(std::move(options)),
      core_(core),
      backend_(options_.model, options_.device, options_.engine.blocks, options_.weights),
      engine_(options_.engine),
      staging_(MakeStaging(options_.engine.staging, backend_)) {}

void SimulatedPrefill::Submit(PrefillJob job) {
  Apply([&](PrefillEngine& engine, absl::Time now) {
    if (auto refused = engine.Add(std::move(job), now)) options_.failed(*std::move(refused));
  });
}

void SimulatedPrefill::Append(PrefillAppend append) {
  Apply([&](PrefillEngine& engine, absl::Time now) { engine.Append(std::move(append), now); });
}

void SimulatedPrefill::Cancel(const RequestId& id) {
  Apply([&](PrefillEngine& engine, absl::Time now) { engine.Cancel(id, now); });
}

void SimulatedPrefill::Apply(absl::FunctionRef<void(PrefillEngine&, absl::Time now)> event) {
  if (dead_) return;
  event(engine_, core_.queue.Now());
  for (PrefillAction& action : engine_.TakeActions(core_.queue.Now())) {
    std::visit([this](auto& concrete) { Do(std::move(concrete)); }, action);
  }
  ArmTimer();
  Wake();
}

// Schedules a step after all messages of this instant, so that the step includes them.
void SimulatedPrefill::Wake() {
  if (stepping_ || std::exchange(woken_, true)) return;
  core_.queue.After(absl::ZeroDuration(), [this] {
    woken_ = false;
    if (!stepping_ && !dead_) BeginStep();
  });
}

void SimulatedPrefill::BeginStep() {
  const Batch* batch = nullptr;
  stepping_ = true;
  Apply([&](PrefillEngine& engine, absl::Time now) { batch = engine.StartStep(now); });
  if (batch == nullptr) {
    stepping_ = false;
    return;
  }
  const StagedCopies& copies = engine_.copies();
  copies.out.empty() && copies.in.empty() ? Compute(*batch, absl::ZeroDuration()) : Copy(*batch);
}

void SimulatedPrefill::Copy(const Batch& batch) {
  const StagedCopies& copies = engine_.copies();
  const absl::Duration took = backend_.CopyTimeOf(std::ssize(copies.out) + std::ssize(copies.in));
  core_.queue.After(took, [this, &batch, &copies, took] {
    if (dead_) return;
    const absl::Status copied = staging_->Copy(copies);
    BATON_CHECK(copied.ok(), copied.ToString());
    Apply([took](PrefillEngine& engine, absl::Time) { engine.CopiesDone(took); });
    Compute(batch, took);
  });
}

void SimulatedPrefill::Compute(const Batch& batch, absl::Duration copied) {
  StepRecord record{.worker = address_, .start = core_.queue.Now(), .copied = copied};
  for (const SequenceSlice& slice : batch.slices) {
    record.tokens += std::ssize(slice.tokens);
    record.history += slice.start;
  }
  const bool computes = !batch.slices.empty();
  if (computes) record.time = backend_.TimeOf(batch);
  const size_t number = core_.steps.size();
  core_.steps.push_back(record);
  if (!computes) return Finish();
  // Computed at once, because no component reads a block before its layers are done.
  backend_.Forward(batch);
  RunLayer(number, 0);
}

void SimulatedPrefill::Finish() {
  stepping_ = false;
  Apply([](PrefillEngine& engine, absl::Time now) { engine.FinishStep(absl::OkStatus(), now); });
}

void SimulatedPrefill::RunLayer(size_t step, int64_t layer) {
  StepRecord& record = core_.steps[step];
  const int64_t layers = backend_.kv_layout().layers;
  const double share = static_cast<double>(layer + 1) / static_cast<double>(layers);
  core_.queue.At(record.start + record.time * share, [this, step, layer, layers] {
    if (dead_) return;
    Apply([layer](PrefillEngine& engine, absl::Time now) { engine.LayerDone(layer, now); });
    layer + 1 < layers ? RunLayer(step, layer + 1) : Finish();
  });
}

void SimulatedPrefill::ArmTimer() {
  timer_.By(core_.queue, engine_.NextTick(),
            [this] { Apply([](PrefillEngine& engine, absl::Time now) { engine.Tick(now); }); });
}

// Sends a message to a decode worker. `handle` computes the reply there. `answer` receives the
// reply here.
template <typename Reply, typename Handle, typename Answer>
void SimulatedPrefill::Call(const WorkerAddress& to, Handle handle, Answer answer) {
  core_.network.Send(address_, to, [this, to, handle = std::move(handle), answer = std::move(answer)]() mutable {
    Reply reply = options_.reach(to).Deliver(std::move(handle));
    core_.network.Send(to, address_, [this, reply = std::move(reply), answer = std::move(answer)]() mutable {
      Apply([&](PrefillEngine& engine, absl::Time now) { answer(engine.sender(), std::move(reply), now); });
    });
  });
}

void SimulatedPrefill::Do(SendLink action) {
  using Reply = absl::StatusOr<LinkReply>;
  Call<Reply>(
      action.to,
      [request = std::move(action.request)](auto& receiver, auto now) { return receiver.OnLink(request, now); },
      [link = action.link](auto& sender, Reply reply, auto now) { sender.OnLinkReply(link, std::move(reply), now); });
}

void SimulatedPrefill::Do(OpenConnection action) {
  connections_[action.link] = action.to;
  core_.network.Send(action.to, address_, [this, link = action.link] {
    Apply([&](PrefillEngine& engine, absl::Time now) { engine.sender().OnConnected(link, absl::OkStatus(), now); });
  });
}

void SimulatedPrefill::Do(SendReserve action) {
  using Reply = absl::StatusOr<ReserveReply>;
  Call<Reply>(
      action.to,
      [request = std::move(action.request)](auto& receiver, auto now) { return receiver.OnReserve(request, now); },
      [id = action.handoff](auto& sender, Reply reply, auto now) { sender.OnReserveReply(id, std::move(reply), now); });
}

void SimulatedPrefill::Do(SendCommit action) {
  Call<absl::Status>(
      action.to, [commit = action.commit](auto& receiver, auto now) { return receiver.OnCommit(commit, now); },
      [id = action.handoff](auto& sender, const absl::Status& reply, auto now) {
        sender.OnCommitReply(id, reply, now);
      });
}

void SimulatedPrefill::Do(SendRelease action) {
  Call<absl::Status>(
      action.to,
      [release = action.release](auto& receiver, auto now) {
        receiver.OnRelease(release, now);
        return absl::OkStatus();
      },
      [from = action.to, ref = action.release.reservation](auto& sender, const absl::Status& reply, auto now) {
        sender.OnReleaseReply(from, ref, reply, now);
      });
}

void SimulatedPrefill::Do(SendHeartbeat action) {
  using Reply = absl::StatusOr<HeartbeatReply>;
  Call<Reply>(
      action.to, [beat = action.heartbeat](auto& receiver, auto now) { return receiver.OnHeartbeat(beat, now); },
      [id = action.id](auto& sender, Reply reply, auto now) { sender.OnHeartbeatReply(id, std::move(reply), now); });
}

// The content of a block moves with the push of its last layer.
void SimulatedPrefill::Do(PushBlocks action) {
  int64_t bytes = 0;
  for (const BlockCopy& copy : action.copies) bytes += copy.bytes;
  const auto connection = connections_.find(action.link);
  BATON_CHECK(connection != connections_.end(), "pushed by a connection that is closed");
  core_.network.Push(address_, bytes, options_.device.network_rate,
                     [this, to = connection->second, action = std::move(action)] {
                       if (dead_) return;
                       const int64_t block_bytes = backend_.kv_layout().BlockBytes();
                       SimulatedBackend& target = options_.reach(to).backend();
                       for (const BlockCopy& copy : action.copies) {
                         const int64_t shift = (copy.target_offset - copy.source_offset) / block_bytes;
                         for (int64_t block = copy.source_offset / block_bytes;
                              (block + 1) * block_bytes <= copy.source_offset + copy.bytes; ++block) {
                           target.TakeBlock(backend_, BlockId(static_cast<uint32_t>(block)),
                                            BlockId(static_cast<uint32_t>(block + shift)));
                         }
                       }
                       Apply([&](PrefillEngine& engine, absl::Time now) {
                         engine.sender().OnPushDone(action.push, absl::OkStatus(), now);
                       });
                     });
}

}  // namespace baton
