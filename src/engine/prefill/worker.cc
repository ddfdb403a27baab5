#include "engine/prefill/worker.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/logging.h"

namespace baton {
namespace {

// The time that cancelled hand-offs have at shutdown to notify their decode workers.
constexpr absl::Duration kCancelGrace = absl::Seconds(1);

// Several threads, so that some wait for the disk while others verify the bytes that they have
// read.
constexpr int kDiskThreads = 4;
constexpr int kMostWriting = 2;  // upper bound on threads that write, so that reads have threads

// Fewer than this many hanging peers do not delay the connections of other peers.
constexpr int kLinkThreads = 4;

absl::Time AgainIf(bool again) { return again ? absl::InfinitePast() : absl::InfiniteFuture(); }

}  // namespace

PrefillWorker::PrefillWorker(PrefillEngineOptions options, PrefillWorkerParts parts)
    : parts_(std::move(parts)), engine_(std::move(options)) {
  BATON_CHECK(parts_.staging != nullptr || !engine_.staging().enabled(),
              "the options stage KV, but there is no staging store");
  const std::lock_guard lock(mutex_);  // so that the threads wait until all of them exist
  for (int i = 0; i < (engine_.staging().has_disk() ? kDiskThreads : 0); ++i) {
    stagers_.push_back(std::make_unique<StepLoop>(parts_.clock, [this] { return AgainIf(ServeDisk()); }));
  }
  digester_.emplace(parts_.clock, [this] { return AgainIf(ServeDigests()); });
  for (int i = 0; i < kLinkThreads; ++i) {
    connectors_.push_back(std::make_unique<StepLoop>(parts_.clock, [this] { return AgainIf(ServeLinks()); }));
  }
  timer_.emplace(parts_.clock, [this] { return Tick(); });
  stepper_.emplace(parts_.clock, [this] { return AgainIf(Step()); });
}

std::optional<RequestFailed> PrefillWorker::Submit(PrefillJob job) {
  std::optional<RequestFailed> refused;
  Post([&](PrefillEngine& engine, absl::Time now) {
    if (accepting_) {
      refused = engine.Add(std::move(job), now);
    } else {
      // Another worker may have room, or the process that replaces this worker.
      refused = {job.request_id, absl::ResourceExhaustedError("this prefill worker is shutting down"), kDrainRetry};
    }
  });
  return refused;
}

void PrefillWorker::Append(PrefillAppend append) {
  Post([&](PrefillEngine& engine, absl::Time now) { engine.Append(std::move(append), now); });
}

void PrefillWorker::Cancel(const RequestId& id) {
  Post([&](PrefillEngine& engine, absl::Time now) { engine.Cancel(id, now); });
}

void PrefillWorker::EndLeases(LeaseHolder holder) {
  Post([&](PrefillEngine& engine, absl::Time) { engine.EndLeases(holder); });
}

PrefillLoad PrefillWorker::Load() const {
  const std::lock_guard lock(mutex_);
  return engine_.load(parts_.clock.Now());
}

void PrefillWorker::Post(Event event) {
  Drive(event);
  stepper_->Wake();
}

void PrefillWorker::Drive(Event event) {
  bool earlier = false;
  std::vector<DiskTransfer> transfers;
  std::optional<absl::Status> disk;  // set if it has changed
  bool disk_off = false;
  std::optional<bool> slow;  // set if it has changed
  {
    const std::lock_guard lock(mutex_);
    const absl::Time now = parts_.clock.Now();
    event(engine_, now);
    std::vector<PrefillAction> actions = engine_.TakeActions(now);
    std::move(actions.begin(), actions.end(), std::back_inserter(outbox_));
    transfers = engine_.staging().TakeTransfers(now);
    const KvStaging& staging = engine_.staging();
    const DiskState state = staging.disk_is_off()        ? DiskState::kOff
                            : staging.disk_status().ok() ? DiskState::kUsed
                                                         : DiskState::kFull;
    if (state != disk_state_) disk = staging.disk_status();
    disk_state_ = state;
    disk_off = state == DiskState::kOff;
    if (disk_slow_ != engine_.staging().disk_is_slow()) slow = disk_slow_ = !disk_slow_;
    earlier = engine_.NextTick() < next_tick_;
  }
  if (disk && disk->ok()) spdlog::info("the disk for staged KV has space again");
  if (disk && disk_off) {
    spdlog::error("the disk for staged KV is off until this worker is restarted: {}", disk->ToString());
  } else if (disk && !disk->ok()) {
    spdlog::warn("the disk for staged KV is full, writes pause for 10 s: {}", disk->ToString());
  }
  if (slow) {
    spdlog::info(*slow ? "reading staged KV from disk takes longer than computing it: reads pause, except for probes"
                       : "reading staged KV from disk is faster than computing it again");
  }
  if (!transfers.empty()) {
    const std::lock_guard lock(disk_mutex_);
    for (const DiskTransfer& transfer : transfers) (transfer.read ? reads_ : writes_).push_back(transfer);
    for (const auto& stager : stagers_) stager->Wake();
  }
  Drain();
  if (earlier) timer_->Wake();
}

void PrefillWorker::Drain() {
  std::unique_lock lock(mutex_);
  if (draining_) return;
  draining_ = true;
  while (!outbox_.empty()) {
    std::vector<PrefillAction> actions = std::exchange(outbox_, {});
    lock.unlock();
    for (PrefillAction& action : actions) {
      std::visit([this](auto& concrete) { Do(concrete); }, action);
    }
    lock.lock();
  }
  draining_ = false;
  changed_.notify_all();
}

bool PrefillWorker::ServeDisk() {
  DiskTransfer transfer;
  {
    const std::lock_guard lock(disk_mutex_);
    std::deque<DiskTransfer>& queue = reads_.empty() ? writes_ : reads_;
    if (queue.empty() || (reads_.empty() && writing_ >= kMostWriting)) return false;
    transfer = queue.front();
    queue.pop_front();
    writing_ += !transfer.read;
  }
  const absl::Time begin = parts_.clock.Now();
  const absl::Status status = parts_.staging->Transfer(transfer);
  const absl::Duration took = parts_.clock.Now() - begin;
  if (!transfer.read) {
    const std::lock_guard lock(disk_mutex_);
    --writing_;
  }
  Post([&](PrefillEngine& engine, absl::Time now) { engine.staging().OnTransferred(transfer, status, took, now); });
  return true;
}

bool PrefillWorker::Step() {
  const Batch* batch = nullptr;
  const StagedCopies* copies = nullptr;
  Drive([&](PrefillEngine& engine, absl::Time now) {
    batch = engine.StartStep(now);
    copies = &engine.copies();
  });
  if (batch == nullptr) return false;
  const auto layer_done = [&](int64_t layer) {
    Drive([layer](PrefillEngine& engine, absl::Time now) { engine.LayerDone(layer, now); });
    return true;
  };
  if (parts_.staging != nullptr && !(copies->out.empty() && copies->in.empty())) {
    const absl::Time begin = parts_.clock.Now();
    const absl::Status copied = parts_.staging->Copy(*copies);
    // A copy fails only if the device has failed. The blocks would then not have the content that
    // their keys name.
    BATON_CHECK(copied.ok(), copied.ToString());
    const absl::Duration took = parts_.clock.Now() - begin;
    Drive([took](PrefillEngine& engine, absl::Time) { engine.CopiesDone(took); });
  }
  absl::Status status;
  if (!batch->slices.empty()) status = parts_.backend.Forward(*batch, layer_done).status();
  if (!status.ok()) spdlog::error("the forward pass failed: {}", status.ToString());
  Drive([&](PrefillEngine& engine, absl::Time now) { engine.FinishStep(status, now); });
  return true;
}

absl::Time PrefillWorker::Tick() {
  Post([](PrefillEngine& engine, absl::Time now) { engine.Tick(now); });
  const std::lock_guard lock(mutex_);
  return next_tick_ = engine_.NextTick();
}

void PrefillWorker::AwaitIdle(absl::Duration longest) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(std::min(longest, absl::Hours(24))),
                    [this] { return engine_.idle() && outbox_.empty() && !draining_; });
}

void PrefillWorker::Shutdown(absl::Duration grace) {
  std::call_once(shut_down_, [&] {
    {
      const std::lock_guard lock(mutex_);
      accepting_ = false;
    }
    const absl::Status shut_down = absl::UnavailableError("the prefill worker was shut down");
    Post([&](PrefillEngine& engine, absl::Time now) { engine.FailYielding(shut_down, now); });
    AwaitIdle(grace);
    Post([&](PrefillEngine& engine, absl::Time now) { engine.FailAll(shut_down, now); });
    AwaitIdle(kCancelGrace);
    stepper_->Stop();
    timer_->Stop();
    {
      const std::lock_guard lock(links_mutex_);
      opens_links_ = false;
    }
    for (const auto& connector : connectors_) connector->Stop();
    for (const auto& stager : stagers_) stager->Stop();
    digester_->Stop();
    CloseAllLinks();
    GiveUpDigests();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return calls_ == 0 && outbox_.empty() && !draining_; });
  });
}

// Ends the pushes in flight, so that their results come. Closes all connections at the same time,
// since each may wait for a peer that hangs.
void PrefillWorker::CloseAllLinks() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !draining_; });
    draining_ = true;
  }
  std::vector<std::jthread> closers;
  {
    const std::lock_guard lock(links_mutex_);
    to_open_.clear();
    for (auto& [id, link] : std::exchange(links_, {})) to_close_.push_back(std::move(link));
    for (auto& link : std::exchange(to_close_, {}))
      closers.emplace_back([link = std::move(link)]() mutable { link.reset(); });
  }
  closers.clear();
  {
    const std::lock_guard lock(mutex_);
    draining_ = false;
  }
  Drain();
}

DecodePeer& PrefillWorker::Peer(const WorkerAddress& address) {
  std::unique_ptr<DecodePeer>& peer = peers_[address];
  if (peer == nullptr) peer = parts_.reach(address);
  BATON_CHECK(peer != nullptr, "the dialer returned no peer object");
  return *peer;
}

template <typename Reply, typename Handler>
absl::AnyInvocable<void(Reply)> PrefillWorker::Answer(Handler handler) {
  {
    const std::lock_guard lock(mutex_);
    ++calls_;
  }
  return [this, handler = std::move(handler)](Reply reply) {
    Post([&](PrefillEngine& engine, absl::Time now) { handler(engine.sender(), std::move(reply), now); });
    const std::lock_guard lock(mutex_);
    --calls_;
    changed_.notify_all();  // under the lock, because the worker may be destroyed after it
  };
}

void PrefillWorker::Do(SendLink& action) {
  using Reply = absl::StatusOr<LinkReply>;
  Peer(action.to).SendLink(action.request, Answer<Reply>([link = action.link](auto& sender, Reply reply, auto now) {
                             sender.OnLinkReply(link, std::move(reply), now);
                           }));
}

void PrefillWorker::Do(SendReserve& action) {
  using Reply = absl::StatusOr<ReserveReply>;
  Peer(action.to).SendReserve(action.request, Answer<Reply>([id = action.handoff](auto& sender, Reply reply, auto now) {
                                sender.OnReserveReply(id, std::move(reply), now);
                              }));
}

void PrefillWorker::Do(SendCommit& action) {
  using Reply = absl::StatusOr<DecodePeer::Ack>;
  Peer(action.to).SendCommit(action.commit, Answer<Reply>([id = action.handoff](auto& sender, Reply reply, auto now) {
                               sender.OnCommitReply(id, reply.status(), now);
                             }));
}

void PrefillWorker::Do(SendRelease& action) {
  using Reply = absl::StatusOr<DecodePeer::Ack>;
  const auto answer = [from = action.to, ref = action.release.reservation](auto& sender, Reply reply, auto now) {
    sender.OnReleaseReply(from, ref, reply.status(), now);
  };
  Peer(action.to).SendRelease(action.release, Answer<Reply>(answer));
}

void PrefillWorker::Do(SendHeartbeat& action) {
  using Reply = absl::StatusOr<HeartbeatReply>;
  Peer(action.to).SendHeartbeat(action.heartbeat, Answer<Reply>([id = action.id](auto& sender, Reply reply, auto now) {
                                  sender.OnHeartbeatReply(id, std::move(reply), now);
                                }));
}

void PrefillWorker::Do(PushBlocks& action) {
  auto answer = Answer<absl::Status>([push = action.push](auto& sender, const absl::Status& status, auto now) {
    sender.OnPushDone(push, status, now);
  });
  Link* link = nullptr;
  {
    const std::lock_guard lock(links_mutex_);
    const auto found = links_.find(action.link);
    if (found != links_.end()) link = found->second.get();
  }
  if (link != nullptr && action.write_key.has_value()) {
    link->PushUnder(*action.write_key, action.copies, std::move(answer));
  } else if (link != nullptr) {
    link->Push(action.copies, std::move(answer));
  } else {
    answer(absl::UnavailableError("the connection is closed"));
  }
}

void PrefillWorker::Do(DigestBlocks& action) {
  auto answer = Answer<Digests>(
      [id = action.id](auto& sender, Digests digests, auto now) { sender.OnDigests(id, digests, now); });
  {
    const std::lock_guard lock(digests_mutex_);
    to_digest_.push_back({std::move(action.blocks), std::move(answer)});
  }
  digester_->Wake();
}

bool PrefillWorker::ServeDigests() {
  ToDigest next;
  {
    const std::lock_guard lock(digests_mutex_);
    if (to_digest_.empty()) return false;
    next = std::move(to_digest_.front());
    to_digest_.pop_front();
  }
  next.answer(DigestsOf(parts_.backend.kv_slab(), parts_.backend.kv_layout(), next.blocks));
  return true;
}

// Answers the digests that have not begun, so that no answer is outstanding. All hand-offs have
// failed, so none needs the digests.
void PrefillWorker::GiveUpDigests() {
  std::deque<ToDigest> left;
  {
    const std::lock_guard lock(digests_mutex_);
    left.swap(to_digest_);
  }
  for (ToDigest& one : left) one.answer(absl::CancelledError("the prefill worker shuts down"));
}

void PrefillWorker::Do(OpenConnection& action) {
  {
    const std::lock_guard lock(links_mutex_);
    opening_.insert(action.link);
    to_open_.push_back(std::move(action));
  }
  WakeConnectors();
}

void PrefillWorker::Do(CloseConnection& action) {
  {
    const std::lock_guard lock(links_mutex_);
    opening_.erase(action.link);
    const auto found = links_.find(action.link);
    if (found == links_.end()) return;
    to_close_.push_back(std::move(found->second));
    links_.erase(found);
  }
  WakeConnectors();
}

void PrefillWorker::Do(ForgetPeer& action) {
  const auto found = peers_.find(action.peer);
  BATON_CHECK(found != peers_.end(), "the peer to forget is unknown");
  {
    const std::lock_guard lock(links_mutex_);
    to_forget_.push_back(std::move(found->second));
  }
  peers_.erase(found);
  WakeConnectors();
}

void PrefillWorker::WakeConnectors() {
  for (const auto& connector : connectors_) connector->Wake();
}

bool PrefillWorker::ServeLinks() {
  std::unique_ptr<Link> closing;
  std::unique_ptr<DecodePeer> forgotten;
  OpenConnection opening;
  {
    const std::lock_guard lock(links_mutex_);
    if (!to_close_.empty()) {
      closing = std::move(to_close_.front());
      to_close_.pop_front();
    } else if (!to_forget_.empty()) {
      forgotten = std::move(to_forget_.front());
      to_forget_.pop_front();
    } else if (opens_links_ && !to_open_.empty()) {
      opening = std::move(to_open_.front());
      to_open_.pop_front();
    } else {
      return false;
    }
  }
  if (closing == nullptr && forgotten == nullptr) Open(opening);
  return true;
}

void PrefillWorker::Open(const OpenConnection& action) {
  auto link = parts_.connector.Connect(action.transport_descriptor);
  const absl::Status status = link.status();
  const bool ends_with_process = link.ok() && (*link)->EndsWithProcess();
  if (status.ok()) {
    spdlog::info("connected to decode worker {}: {}", action.to, (*link)->Description());
    const std::lock_guard lock(links_mutex_);
    // If the connection was closed meanwhile, `link` is destroyed at the end of this function.
    if (opening_.erase(action.link) > 0) links_[action.link] = *std::move(link);
  } else {
    spdlog::warn("cannot connect to decode worker {}: {}", action.to, status.ToString());
  }
  Post([&](PrefillEngine& engine, absl::Time now) {
    engine.sender().OnConnected(action.link, status, now, ends_with_process);
  });
}

}  // namespace baton
