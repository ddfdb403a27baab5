#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/strings.h"
#include "simulator/workers.h"

namespace baton {
namespace {

// The times of shell/grpc_decode_peer.cc and of a connector.
constexpr absl::Duration kCallTimeout = absl::Seconds(5), kConnectTimeout = absl::Seconds(3);
// Bound on the time in which a write lands after its connection was closed.
constexpr absl::Duration kLateWrites = absl::Seconds(1);

// Makes a real store for the host memory, whose slots hold the content of blocks of the simulated
// slab.
std::unique_ptr<StagingStore> MakeStaging(StagingOptions blocks, SimulatedBackend& backend) {
  if (blocks.host == 0) return nullptr;
  blocks.disk = 0;
  auto store = StagingStore::Create(blocks, SimulatedBackend::BlockBytes(), backend.slab());
  BATON_CHECK(store.ok(), store.status().ToString());
  return *std::move(store);
}

// Returns a name for the trace.
std::string NameOf(const ReservationRef& ref) {
  return StrCat("reservation ", ref.id.value(), ".", ref.generation.value());
}

}  // namespace

SimulatedPrefill::SimulatedPrefill(WorkerAddress address, Options options, SimulatorCore& core)
    : address_(std::move(address)),
      options_(std::move(options)),
      core_(core),
      process_(address_, core_.queue),
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

void SimulatedPrefill::EndLeases(LeaseHolder holder) {
  Apply([&](PrefillEngine& engine, absl::Time) { engine.EndLeases(holder); });
}

// REQUIRES: the process runs.
void SimulatedPrefill::Apply(absl::FunctionRef<void(PrefillEngine&, absl::Time now)> event) {
  event(engine_, core_.queue.Now());
  for (PrefillAction& action : engine_.TakeActions(core_.queue.Now())) {
    std::visit([this](auto& concrete) { Do(std::move(concrete)); }, action);
  }
  for (const DiskTransfer& transfer : engine_.staging().TakeTransfers(core_.queue.Now())) Transfer(transfer);
  ArmTimer();
  Wake();
}

// Schedules a step after all messages of this instant, so that the step includes them.
void SimulatedPrefill::Wake() {
  if (stepping_ || std::exchange(woken_, true)) return;
  process_.After(absl::ZeroDuration(), [this] {
    woken_ = false;
    if (!stepping_) BeginStep();
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
  process_.After(took, [this, &batch, &copies, took] {
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
  process_.At(std::max(record.start + record.time * share, core_.queue.Now()), [this, step, layer, layers] {
    Apply([layer](PrefillEngine& engine, absl::Time now) { engine.LayerDone(layer, now); });
    layer + 1 < layers ? RunLayer(step, layer + 1) : Finish();
  });
}

void SimulatedPrefill::ArmTimer() {
  timer_.By(core_.queue, engine_.NextTick(), [this] {
    process_.Run([this] { Apply([](PrefillEngine& engine, absl::Time now) { engine.Tick(now); }); });
  });
}

void SimulatedPrefill::Transfer(const DiskTransfer& transfer) {
  const absl::Time begun = core_.queue.Now();
  process_.At(disk_.Begin(begun), [this, transfer, begun] {
    const absl::Time now = core_.queue.Now();
    const absl::Status status = disk_.Transfer(transfer, staging_->HostSlot(transfer.host_slot), now);
    Apply(
        [&](PrefillEngine& engine, absl::Time) { engine.staging().OnTransferred(transfer, status, now - begun, now); });
  });
}

// --- Hand-off ----------------------------------------------------------------

// Calls a decode worker. `handle` computes the reply there. `answer` receives here the first of the
// reply, the loss of a message, and the deadline.
template <typename Reply, typename Handle, typename Answer>
void SimulatedPrefill::Call(const WorkerAddress& to, std::string_view name, const RequestId& request, Handle handle,
                            Answer answer) {
  const auto finish = [this, answered = std::make_shared<bool>(false), answer = std::move(answer)](Reply reply) {
    process_.Run([this, answered, answer, reply = std::move(reply)]() mutable {
      if (std::exchange(*answered, true)) return;
      Apply([&](PrefillEngine& engine, absl::Time now) { answer(engine.sender(), std::move(reply), now); });
    });
  };
  const auto lost = [finish] { finish(absl::UnavailableError("the connection broke")); };
  process_.After(kCallTimeout, [finish] { finish(absl::DeadlineExceededError("the peer did not answer")); });
  const auto arrive = [this, to, name, request, handle = std::move(handle), finish, lost] {
    SimulatedDecode* const peer = options_.reach(to);
    if (peer == nullptr) return core_.network.Send({to, address_, Way::kCall, "Refused", request}, lost, lost);
    peer->process().Run([this, peer, to, name, request, handle, finish, lost] {
      const auto answered = [finish, reply = Reply(peer->Deliver(handle))] { finish(reply); };
      core_.network.Send({to, address_, Way::kCall, StrCat(name, " reply"), request}, answered, lost);
    });
  };
  core_.network.Send({address_, to, Way::kCall, name, request}, arrive, lost);
}

void SimulatedPrefill::Do(SendLink action) {
  using Reply = absl::StatusOr<LinkReply>;
  Call<Reply>(
      action.to, "Link", "",
      [request = std::move(action.request)](auto& receiver, auto now) { return receiver.OnLink(request, now); },
      [link = action.link](auto& sender, Reply reply, auto now) { sender.OnLinkReply(link, std::move(reply), now); });
}

void SimulatedPrefill::Do(OpenConnection action) {
  const auto finish = [this, done = std::make_shared<bool>(false), link = action.link](const absl::Status& status) {
    process_.Run([this, done, link, status] {
      if (std::exchange(*done, true)) return;
      if (!status.ok()) connections_.erase(link);
      Apply([&](PrefillEngine& engine, absl::Time now) { engine.sender().OnConnected(link, status, now); });
    });
  };
  const auto lost = [finish] { finish(absl::UnavailableError("the connection broke")); };
  SimulatedDecode* const peer = options_.reach(action.to);
  if (peer == nullptr || peer->descriptor() != action.transport_descriptor) {
    return core_.network.Send({action.to, address_, Way::kCall, "Refused"}, lost, lost);
  }
  connections_[action.link] = std::make_shared<Connection>(Connection{.peer = *peer});
  process_.After(kConnectTimeout, [finish] { finish(absl::UnavailableError("the peer did not answer")); });
  peer->process().Run([this, to = action.to, finish, lost] {
    core_.network.Send(
        {to, address_, Way::kCall, "Connected"}, [finish] { finish(absl::OkStatus()); }, lost);
  });
}

void SimulatedPrefill::Do(CloseConnection action) {
  const auto closed = connections_.extract(action.link);
  if (closed.empty()) return;
  closed.mapped()->closed = core_.queue.Now();
  for (const auto& [push, link] : pushes_) {
    if (link != action.link) continue;
    process_.After(absl::ZeroDuration(),
                   [this, id = push] { EndPush(id, absl::UnavailableError("the connection was closed")); });
  }
}

void SimulatedPrefill::Do(SendReserve action) {
  using Reply = absl::StatusOr<ReserveReply>;
  const RequestId request = action.request.request_id;
  Call<Reply>(
      action.to, "Reserve", request,
      [request = std::move(action.request)](auto& receiver, auto now) { return receiver.OnReserve(request, now); },
      [id = action.handoff](auto& sender, Reply reply, auto now) { sender.OnReserveReply(id, std::move(reply), now); });
}

void SimulatedPrefill::Do(SendCommit action) {
  Call<absl::Status>(
      action.to, "Commit", NameOf(action.commit.reservation),
      [commit = action.commit](auto& receiver, auto now) { return receiver.OnCommit(commit, now); },
      [id = action.handoff](auto& sender, const absl::Status& reply, auto now) {
        sender.OnCommitReply(id, reply, now);
      });
}

void SimulatedPrefill::Do(SendRelease action) {
  Call<absl::Status>(
      action.to, "Release", NameOf(action.release.reservation),
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
      action.to, "Heartbeat", "",
      [beat = action.heartbeat](auto& receiver, auto now) { return receiver.OnHeartbeat(beat, now); },
      [id = action.id](auto& sender, Reply reply, auto now) { sender.OnHeartbeatReply(id, std::move(reply), now); });
}

// The content of a block moves with the push of its last layer, when the push lands. It also moves
// if this process is stopped or has ended by then, because the network card reads its memory.
void SimulatedPrefill::Do(PushBlocks action) {
  const auto found = connections_.find(action.link);
  pushes_[action.push] = action.link;
  if (found == connections_.end()) {
    return process_.After(absl::ZeroDuration(), [this, push = action.push] {
      EndPush(push, absl::UnavailableError("the connection is closed"));
    });
  }
  int64_t bytes = 0;
  for (const BlockCopy& copy : action.copies) bytes += copy.bytes;
  const std::shared_ptr<Connection> connection = found->second;
  const auto end = [this, push = action.push](const absl::Status& status) {
    process_.Run([this, push, status] { EndPush(push, status); });
  };
  const auto land = [this, connection, copies = std::move(action.copies), end] {
    if (connection->peer.process().ended()) return end(absl::UnavailableError("the peer has ended"));
    if (core_.queue.Now() > connection->closed + kLateWrites) return;
    Land(copies, connection->peer.backend());
    end(absl::OkStatus());
  };
  core_.network.Push({address_, connection->peer.address(), Way::kPush, "push", NameOf(action.reservation)}, bytes,
                     options_.device.network_rate, land,
                     [end] { end(absl::UnavailableError("the connection broke")); });
}

void SimulatedPrefill::Land(const std::vector<BlockCopy>& copies, SimulatedBackend& target) const {
  const int64_t block_bytes = backend_.kv_layout().BlockBytes();
  for (const BlockCopy& copy : copies) {
    const int64_t shift = (copy.target_offset - copy.source_offset) / block_bytes;
    for (int64_t block = copy.source_offset / block_bytes; (block + 1) * block_bytes <= copy.source_offset + copy.bytes;
         ++block) {
      target.TakeBlock(backend_, BlockId(static_cast<uint32_t>(block)), BlockId(static_cast<uint32_t>(block + shift)));
    }
  }
}

void SimulatedPrefill::EndPush(PushId push, const absl::Status& status) {
  if (pushes_.erase(push) == 0) return;
  Apply([&](PrefillEngine& engine, absl::Time now) { engine.sender().OnPushDone(push, status, now); });
}

}  // namespace baton
