// The thread-safe shell around PrefillEngine: one mutex around the core, the forward pass and all calls out of it.
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

// Who wants to know how requests ended. Called from any thread, one call at a time, perhaps before the Submit or Cancel
// that led to it returns; must not block.
class PrefillListener {
 public:
  virtual ~PrefillListener() = default;
  virtual void OnPrefillDone(const PrefillDone& done) = 0;
  virtual void OnPrefillFailed(const RequestFailed& failed) = 0;
};

// What the worker works with; all must outlive it. Never called with the worker's mutex held.
struct PrefillWorkerParts {
  Backend& backend;
  Connector& connector;
  const Clock& clock;  // must move by itself
  PrefillListener& listener;
  // A way to reach a decode worker's control side. Called once for each address; never null.
  absl::AnyInvocable<std::unique_ptr<DecodePeer>(const WorkerAddress&)> reach;
  StagingStore* staging = nullptr;  // as large as the engine's options say; null: they say 0
};

// Owns threads: one computes, one waits for times, four open and close the transport's links, one digests blocks for
// decode workers that want that, and, if there is a disk, four read and write staged KV. Thread-safe.
class PrefillWorker {
 public:
  PrefillWorker(PrefillEngineOptions options, PrefillWorkerParts parts);
  ~PrefillWorker() { Shutdown(absl::ZeroDuration()); }
  PrefillWorker(const PrefillWorker&) = delete;
  PrefillWorker& operator=(const PrefillWorker&) = delete;

  // As PrefillEngine::Add: a refusal, or the listener hears the result. RESOURCE_EXHAUSTED while shutting down.
  std::optional<RequestFailed> Submit(PrefillJob job);
  // As PrefillEngine::Append and Cancel.
  void Append(PrefillAppend append);
  void Cancel(const RequestId& id);
  // As PrefillEngine::EndLeases.
  void EndLeases(LeaseHolder holder);
  PrefillLoad Load() const;

  // Takes no more requests, fails what PrefillEngine::FailOverlapping does at once, lets the others end within `grace`,
  // fails the rest with UNAVAILABLE, stops. All results have been given when it returns. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  using Event = absl::FunctionRef<void(PrefillEngine&, absl::Time now)>;

  // Tells the core of an event and does what it asks for.
  void Tell(Event event);
  // And then lets the computing thread see whether it has work now.
  void Post(Event event);
  // Does the actions in the outbox in their order. One thread at a time: another's are done by the one that is at it.
  void Drain();
  // One transfer between memory and disk, reads first, and never writes on all threads. False: there was none.
  bool ServeDisk();
  // Digests the blocks of one action. False: there was none.
  bool ServeDigests();
  bool Step();  // false: there was nothing to compute
  absl::Time Tick();
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
  void Do(PrefillDone& action) { parts_.listener.OnPrefillDone(action); }
  void Do(RequestFailed& action) { parts_.listener.OnPrefillFailed(action); }

  DecodePeer& Peer(const WorkerAddress& address);
  // A callback that posts an event, counted in calls_ until it has been called.
  template <typename Reply, typename Handler>
  absl::AnyInvocable<void(Reply)> Answer(Handler handler);
  // Closes or opens one link, or lets one peer go; each may wait some seconds for a peer that hangs. False: there was
  // nothing to do.
  bool ServeLinks();
  void WakeConnectors();
  void Open(const OpenConnection& action);
  void CloseAllLinks();
  void GiveUpDigests();

  PrefillWorkerParts parts_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  PrefillEngine engine_;
  std::vector<PrefillAction> outbox_;
  bool draining_ = false;  // some thread is in Drain
  bool accepting_ = true;
  enum class DiskState { kUsed, kFull, kOff } disk_state_ = DiskState::kUsed;  // as logged
  bool disk_slow_ = false;                                                     // and told
  int64_t calls_ = 0;                                                          // answers that have not come yet
  absl::Time next_tick_ = absl::InfinitePast();                                // what the timer waits for

  std::map<WorkerAddress, std::unique_ptr<DecodePeer>> peers_;  // used by the draining thread alone

  // Guards what follows. Only the draining thread takes links away, so that none ends while it is used.
  std::mutex links_mutex_;
  bool opens_links_ = true;  // until it shuts down
  std::deque<OpenConnection> to_open_;
  std::set<LinkId> opening_;  // asked for, neither open nor closed yet
  std::map<LinkId, std::unique_ptr<Link>> links_;
  std::deque<std::unique_ptr<Link>> to_close_;         // destroying a link may take time
  std::deque<std::unique_ptr<DecodePeer>> to_forget_;  // and a peer's last word may come on gRPC's own thread

  std::mutex disk_mutex_;                    // guards what follows
  std::deque<DiskTransfer> reads_, writes_;  // that have not begun
  int writing_ = 0;                          // threads

  using Digests = absl::StatusOr<std::vector<BlockDigest>>;
  struct ToDigest {
    std::vector<BlockId> blocks;
    absl::AnyInvocable<void(Digests)> answer;
  };
  std::mutex digests_mutex_;
  std::deque<ToDigest> to_digest_;

  std::once_flag shut_down_;
  std::vector<std::unique_ptr<StepLoop>> stagers_, connectors_;
  std::optional<StepLoop> digester_, timer_,
      stepper_;  // last: their threads use the rest, and wake each other
};

}  // namespace baton
