// The shell around PrefillEngine: its threads, its mutex, and the calls to device, disk and peers.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "backend/backend.h"
#include "base/clock.h"
#include "engine/handoff/decode_peer.h"
#include "engine/prefill/engine.h"
#include "engine/step_loop.h"
#include "kv/staging/store.h"
#include "request/answers.h"
#include "request/jobs.h"
#include "transport/transport.h"

namespace baton {

// Receives starts and results of requests. Calls come from any thread, one at a time. A call may
// come before the Submit or Cancel that causes it returns. REQUIRES: the methods do not block.
class PrefillListener {
 public:
  virtual ~PrefillListener() = default;
  virtual void OnPrefillStarted(const PrefillStarted& started) = 0;
  virtual void OnPrefillDone(const PrefillDone& done) = 0;
  virtual void OnPrefillFailed(const RequestFailed& failed) = 0;
};

// The objects that a worker uses. All must outlive it. The worker does not hold its mutex when it
// calls them, except the clock.
struct PrefillWorkerParts {
  Backend& backend;
  Connector& connector;
  const Clock& clock;  // REQUIRES: moves by itself
  PrefillListener& listener;
  // Returns a peer for the control messages to the decode worker at this address. Must not return
  // null. Called again for an address only if the earlier peer was given up.
  absl::AnyInvocable<std::unique_ptr<DecodePeer>(const WorkerAddress&)> reach;
  // The bytes of staged KV, of the sizes in PrefillEngineOptions::staging. Null if these are 0.
  StagingStore* staging = nullptr;
};

// Drives a PrefillEngine in real time. Thread-safe. The worker owns these threads:
//
// - One thread computes steps.
// - One thread runs timers.
// - Four threads open and close connections of the transport.
// - One thread digests blocks for decode workers that verify KV.
// - If there is a disk for staged KV, four threads read and write it.
class PrefillWorker {
 public:
  PrefillWorker(PrefillEngineOptions options, PrefillWorkerParts parts);
  ~PrefillWorker() { Shutdown(absl::ZeroDuration()); }
  PrefillWorker(const PrefillWorker&) = delete;
  PrefillWorker& operator=(const PrefillWorker&) = delete;

  // Returns a refusal as PrefillEngine::Add does, or passes the result to the listener later.
  // Refuses with RESOURCE_EXHAUSTED during Shutdown.
  std::optional<RequestFailed> Submit(PrefillJob job);
  // These three act as the methods of PrefillEngine with the same names.
  void Append(PrefillAppend append);
  void Cancel(const RequestId& id);
  void EndLeases(LeaseHolder holder);
  PrefillLoad Load() const;

  // Refuses new requests, and fails streaming prompts and low-priority jobs at once
  // (PrefillEngine::FailYielding). Lets the other requests end within `grace`, and fails those
  // that are left with UNAVAILABLE. Then stops the threads. The listener has all results when
  // Shutdown returns. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  using Event = absl::FunctionRef<void(PrefillEngine&, absl::Time now)>;

  // Passes an event to the core, and runs the actions that follow.
  void Drive(Event event);
  // Passes an event likewise, and wakes the computing thread, which may have work now.
  void Post(Event event);
  // Runs the actions in the outbox in order. If another thread is draining the outbox, that thread
  // runs them, and Drain returns at once.
  void Drain();
  // Runs one transfer between host memory and disk. Reads come before writes, and some threads are
  // left free for reads. Returns false if there was no transfer to run.
  bool ServeDisk();
  // Digests the blocks of one action. Returns false if there was no action.
  bool ServeDigests();
  // Computes a step. Returns false if there was no step to compute.
  bool Step();
  // Runs timers that are due. Returns the time of the next timer.
  absl::Time Tick();
  // Waits until no request or action is left, at most this long.
  void AwaitIdle(absl::Duration longest);

  void Do(SendLink& action);
  void Do(OpenConnection& action);
  void Do(CloseConnection& action);
  void Do(SendReserve& action);
  void Do(SendCommit& action);
  void Do(SendRelease& action);
  void Do(SendHeartbeat& action);
  void Do(PushBlocks& action);
  void Do(DigestBlocks& action);
  void Do(ForgetPeer& action);
  void Do(PrefillStarted& action) { parts_.listener.OnPrefillStarted(action); }
  void Do(PrefillDone& action) { parts_.listener.OnPrefillDone(action); }
  void Do(RequestFailed& action) { parts_.listener.OnPrefillFailed(action); }

  DecodePeer& Peer(const WorkerAddress& address);
  // Returns a callback that posts the answer to the core. calls_ counts the callback until it is
  // called.
  template <typename Reply, typename Handler>
  absl::AnyInvocable<void(Reply)> Answer(Handler handler);
  // Closes or opens one connection, or destroys one peer. Each may wait some seconds for a peer
  // that hangs. Returns false if there was nothing to do.
  bool ServeLinks();
  void WakeConnectors();
  void Open(const OpenConnection& action);
  void CloseAllLinks();
  void GiveUpDigests();

  PrefillWorkerParts parts_;
  mutable std::mutex mutex_;  // guards the members down to next_tick_
  std::condition_variable changed_;
  PrefillEngine engine_;
  std::vector<PrefillAction> outbox_;
  bool draining_ = false;  // a thread is in Drain
  bool accepting_ = true;
  // The states of the disk that were logged last.
  enum class DiskState { kUsed, kFull, kOff } disk_state_ = DiskState::kUsed;
  bool disk_slow_ = false;
  int64_t calls_ = 0;                            // answers that have not come yet
  absl::Time next_tick_ = absl::InfinitePast();  // the time that the timer thread waits for

  std::map<WorkerAddress, std::unique_ptr<DecodePeer>> peers_;  // only the draining thread uses it

  // Guards the members down to to_forget_. Only the draining thread removes connections from
  // links_, so that none ends while that thread uses it.
  std::mutex links_mutex_;
  bool opens_links_ = true;  // false once Shutdown closes connections
  std::deque<OpenConnection> to_open_;
  std::set<LinkId> opening_;  // connections to be opened, neither open nor closed yet
  std::map<LinkId, std::unique_ptr<Link>> links_;
  // Connections and peers that a connector thread is to destroy. The draining thread does not
  // destroy them, because a connection may take time, and because a peer's last answer may have
  // come on a thread of gRPC, which then drains.
  std::deque<std::unique_ptr<Link>> to_close_;
  std::deque<std::unique_ptr<DecodePeer>> to_forget_;

  std::mutex disk_mutex_;                    // guards reads_, writes_ and writing_
  std::deque<DiskTransfer> reads_, writes_;  // transfers that have not begun
  int writing_ = 0;                          // number of threads that write

  using Digests = absl::StatusOr<std::vector<BlockDigest>>;
  struct ToDigest {
    std::vector<BlockId> blocks;
    absl::AnyInvocable<void(Digests)> answer;
  };
  std::mutex digests_mutex_;  // guards to_digest_
  std::deque<ToDigest> to_digest_;

  std::once_flag shut_down_;
  // The threads. They are the last members, because they use the other members and wake each other.
  std::vector<std::unique_ptr<StepLoop>> stagers_, connectors_;
  std::optional<StepLoop> digester_, timer_, stepper_;
};

}  // namespace baton
