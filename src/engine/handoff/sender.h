// The prefill worker's side of the hand-off (design section 4): per decode worker a link, per request a reservation
// that is asked for, filled, committed, or given up. A state machine: events and the time come in, actions go out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/handoff/handoff_blocks.h"
#include "engine/handoff/messages.h"
#include "engine/handoff/peer_links.h"
#include "engine/handoff/release_retries.h"
#include "engine/handoff/sender_actions.h"
#include "transport/transport.h"

namespace baton {

// Since the start. Parts that go ahead of an open prompt are hand-offs, too.
struct HandoffTotals {
  std::map<absl::StatusCode, int64_t> ended;  // hand-offs, by their result
  int64_t blocks_pushed = 0;                  // of those that were committed
  int64_t blocks_held = 0;                    // of these the blocks that the decode worker had already
  int64_t expired_leases = 0;                 // of reservations: none of their heartbeats was answered in time
};
struct HandoffSenderOptions {
  LinkRequest self;                                  // what this worker tells a peer when it links
  absl::Duration max_wait = absl::Seconds(30);       // for a link
  absl::Duration relink_after = absl::Seconds(1);    // a lost peer is left alone for this long
  absl::Duration refused_again = absl::Seconds(10);  // a peer that refused to link is asked again after this long
  absl::Duration forget_idle = absl::Minutes(10);    // without hand-offs; workers come and go
};

// Not thread-safe. Every event is followed by TakeActions. Events about ids that are not known (any more) are ignored.
//
// A hand-off that finds no room fails at once: its blocks are worth more to others than the wait, which is the
// router's, who may know a decode worker that has room.
//
// A hand-off that fails is released, once its pushes have finished and unless one broke off: what was on its way then
// may still land, so the decode worker keeps those blocks in quarantine. Self-fencing: nothing is pushed under a
// reservation whose lease, counted from when the last acknowledged heartbeat (or the Reserve) was SENT, has run out. So
// the decode worker, which counts from when it arrived, is never earlier. A push that is in flight then, or that is in
// flight for kOldestPush leases whatever the heartbeats say, hangs: its connection is closed, which ends it. Under a
// right it is for the link to say that it hangs: there a backlog may move slowly.
class HandoffSender {
 public:
  explicit HandoffSender(HandoffSenderOptions options);
  HandoffSender(const HandoffSender&) = delete;
  HandoffSender& operator=(const HandoffSender&) = delete;

  // Moves the request's KV to `decode_worker`. Part 0 is all of the KV, to be started. The other parts are for the
  // decode worker's cache alone, beside other hand-offs of the request. The sender sets `writer` and `cache_only`.
  // REQUIRES: this part of the request has no hand-off without result here, `keys` has one key for each full block.
  void Begin(WorkerAddress decode_worker, ReserveRequest request, absl::Time now, uint64_t part = 0);
  // May come before or after room is reserved, and for blocks that turn out not to be missing. For an unknown request
  // it does nothing: the hand-off may just have failed. REQUIRES: index < BlocksFor(kv_tokens); `layers` never shrinks
  // and `source` never changes for an index.
  void BlocksReady(const RequestId& request, std::span<const ReadyBlock> blocks, absl::Time now, uint64_t part = 0);
  // The result is HandoffFailed with CANCELLED, at once or when its pushes and digests have finished; nothing if there
  // is no such hand-off (any more).
  void Cancel(const RequestId& request, absl::Time now, uint64_t part = 0);
  // Call it at NextTick() or any time.
  void Tick(absl::Time now);

  void OnLinkReply(LinkId link, absl::StatusOr<LinkReply> reply, absl::Time now);
  void OnConnected(LinkId link, const absl::Status& status, absl::Time now);
  void OnReserveReply(HandoffId handoff, absl::StatusOr<ReserveReply> reply, absl::Time now);
  void OnCommitReply(HandoffId handoff, const absl::Status& status, absl::Time now);
  void OnReleaseReply(const WorkerAddress& from, const ReservationRef& reservation, const absl::Status& status,
                      absl::Time now);
  void OnHeartbeatReply(HeartbeatId heartbeat, absl::StatusOr<HeartbeatReply> reply, absl::Time now);
  void OnPushDone(PushId push, const absl::Status& status, absl::Time now);
  // An error fails the hand-off.
  void OnDigests(DigestId id, const absl::StatusOr<std::vector<BlockDigest>>& digests, absl::Time now);

  std::vector<SenderAction> TakeActions();
  // At the latest; sooner where what was waited for has come since. Infinite future if nothing waits for time.
  absl::Time NextTick() const { return next_tick_; }

  using LinkState = PeerLinks::State;
  LinkState link_state(const WorkerAddress& peer) const { return links_.state(peer); }
  int64_t handoffs() const;  // that have no result yet
  bool idle() const;         // no hand-off, no push or digest under way, no release to repeat
  const HandoffTotals& totals() const { return totals_; }
  // Hand-offs and pushes that were looked at one by one in search of some of them. Only what is rare may search, such
  // as Tick, and not each of thousands of events.
  int64_t visits() const { return visits_; }
  void CheckInvariants() const;

 private:
  // kDraining: failure is certain; the result waits for pushes and digests, the Release also for the reply that is due.
  enum class State { kWaitingForLink, kReserving, kWriting, kCommitting, kDraining };
  struct Handoff {
    Handoff(WorkerAddress to, ReserveRequest reserve, uint64_t its_part, const KvLayout& layout)
        : decode_worker(std::move(to)),
          request(std::move(reserve)),
          part(its_part),
          blocks(BlocksFor(request.kv_tokens), layout) {}
    WorkerAddress decode_worker;
    ReserveRequest request;
    uint64_t part;
    HandoffBlocks blocks;
    State state = State::kWaitingForLink;
    absl::Time give_up_at;       // while waiting for a link
    bool reply_pending = false;  // to Reserve or Commit
    bool relinked = false;       // asked once already, of a peer that had restarted
    LinkId link;                 // the one it reserves and pushes by
    absl::Time reserve_sent;
    bool reserved = false;
    ReservationRef reservation;
    std::optional<WriteRight> right;
    Incarnation decode_incarnation;
    absl::Duration lease;
    absl::Time fenced_at;  // the lease's end as we may count it
    int64_t pushes_in_flight = 0;
    int64_t digests_in_flight = 0;
    bool wants_digests = false;
    int64_t bytes_pushed = 0;
    bool drained = true;    // false: a push broke off and may still land
    bool reported = false;  // the result is out
    absl::Status failure;   // kDraining
    absl::Duration retry_after;
  };
  struct PushInFlight {
    HandoffId handoff;
    absl::Time give_up_at;
  };
  struct DigestInFlight {
    HandoffId handoff;
    std::vector<int32_t> indices;
  };
  struct SentHeartbeat {
    LinkId link;
    absl::Time sent;
    std::vector<HandoffId> renews;
  };

  // Links: what becomes of a peer becomes of its hand-offs.
  void SeekLink(HandoffId id, absl::Time now);
  void Follow(const std::optional<PeerLinks::Change>& change, absl::Time now);
  void LosePeer(LinkId link, const absl::Status& why, absl::Time now);
  bool RestartPeer(LinkId link, absl::Time now);  // false: the link is gone already
  std::vector<HandoffId> HandoffsOf(const WorkerAddress& peer) const;

  // Leases.
  static absl::Duration HeartbeatInterval(absl::Duration lease) { return lease / 4; }
  static bool IsRenewable(const Handoff& handoff);
  std::vector<HandoffId> Renewable(LinkId link) const;
  bool HasRenewable(LinkId link) const;
  void RenewLease(const SentHeartbeat& heartbeat, const HeartbeatReply& reply, absl::Time now);
  void Fence(HandoffId id, Handoff& handoff, absl::Time now);

  // One hand-off.
  Handoff* Find(HandoffId id);
  void Reserve(HandoffId id, Handoff& handoff, const PeerLinks::Peer& peer, absl::Time now);
  void OnReserveError(HandoffId id, Handoff& handoff, const absl::Status& status, absl::Time now);
  void OnReserved(HandoffId id, Handoff& handoff, const Reserved& reserved, absl::Time now);
  void Push(HandoffId id, Handoff& handoff, std::vector<BlockCopy> copies, absl::Time now);
  void CoverPosted(HandoffId id, Handoff& handoff);
  void MaybeCommit(HandoffId id, Handoff& handoff);
  void PostCommit(HandoffId id, Handoff& handoff);
  void Fail(HandoffId id, absl::Status status, absl::Duration retry_after, absl::Time now);
  void MaybeFinish(HandoffId id, Handoff& handoff, absl::Time now);

  void TickHandoff(HandoffId id, Handoff& handoff, absl::Time now);
  void TickPushes(absl::Time now);
  void TickHeartbeats(absl::Time now);
  absl::flat_hash_set<WorkerAddress> BusyPeers() const;
  void TickBy(absl::Time time) { next_tick_ = std::min(next_tick_, time); }
  absl::Time FindNextTick() const;

  HandoffSenderOptions options_;
  std::vector<SenderAction> actions_;
  PeerLinks links_;
  ReleaseRetries releases_;
  uint64_t next_id_ = 1;
  std::map<HandoffId, Handoff> handoffs_;                                      // in the order of Begin
  absl::flat_hash_map<std::pair<RequestId, uint64_t>, HandoffId> by_request_;  // and part; those without result
  std::map<HeartbeatId, SentHeartbeat> heartbeats_;
  std::map<PushId, PushInFlight> pushes_;
  std::map<DigestId, DigestInFlight> digests_;
  absl::Time next_tick_ = absl::InfiniteFuture();
  HandoffTotals totals_;
  mutable int64_t visits_ = 0;
};

}  // namespace baton
