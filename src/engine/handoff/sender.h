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
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/handoff/messages.h"
#include "transport/transport.h"

namespace baton {

// Drawn by the sender; an event that answers an action quotes its id, so that late and doubled answers are recognised.
using LinkId = Id<struct LinkIdTag, uint64_t>;            // one attempt to link, and the connection it leads to
using HandoffId = Id<struct HandoffIdTag, uint64_t>;      // one request's hand-off
using HeartbeatId = Id<struct HeartbeatIdTag, uint64_t>;  // one heartbeat
using PushId = Id<struct PushIdTag, uint64_t>;            // one push
using DigestId = Id<struct DigestIdTag, uint64_t>;        // one DigestBlocks

// One request's KV, to be moved to one decode worker.
struct HandoffJob {
  RequestId request_id;
  WorkerAddress decode_worker;
  std::vector<BlockKey> keys;  // of the full blocks of the KV tokens
  int32_t kv_tokens = 0;       // [0, n-1) of a prompt of n tokens
  int32_t max_new_tokens = 0;
  // 0: all of it, to be started. Else for the decode worker's cache alone (ReserveRequest::cache_only), beside others
  // of the request.
  uint64_t part = 0;
};

// Layers [0, layers) of block `index` of the prompt's block table hold all the tokens that this prompt has there, and
// lie in block `source` of our slab. They must stay untouched until the hand-off's result.
struct ReadyBlock {
  int32_t index = 0;
  BlockId source;
  int64_t layers = 0;
};

// What the shell must do. "→" names the event that answers it, which must come exactly once.
struct SendLink {  // → OnLinkReply
  LinkId link;
  WorkerAddress to;
  LinkRequest request;
};
struct OpenConnection {  // Transport::Connect, best on another thread (it measures) → OnConnected
  LinkId link;
  WorkerAddress to;
  std::string transport_descriptor;
};
struct CloseConnection {  // destroy the transport's link; pushes in flight on it still report
  LinkId link;
};
struct SendReserve {  // → OnReserveReply
  HandoffId handoff;
  WorkerAddress to;
  ReserveRequest request;
};
struct SendCommit {  // → OnCommitReply
  HandoffId handoff;
  WorkerAddress to;
  Commit commit;
};
struct SendRelease {  // → OnReleaseReply
  WorkerAddress to;
  Release release;
};
struct SendHeartbeat {  // → OnHeartbeatReply
  HeartbeatId id;
  WorkerAddress to;
  Heartbeat heartbeat;
};
struct PushBlocks {  // Link::Push → OnPushDone; UNAVAILABLE if the connection is not there any more
  PushId push;
  LinkId link;
  ReservationRef reservation;  // that it writes under, for logs and tests
  std::vector<BlockCopy> copies;
  std::optional<WriteRight> right{};  // where the peer guards its blocks
};
// The bytes of these blocks of our slab, for a decode worker that wants digests (DigestsOf) → OnDigests. They stay
// untouched until then.
struct DigestBlocks {
  DigestId id;
  ReservationRef reservation;  // for logs and tests
  std::vector<BlockId> blocks;
};
// There is room. `missing` are the block indices that the decode worker does not hold, ascending: the only ones pushed.
struct HandoffReserved {
  RequestId request_id;
  std::vector<int32_t> missing;
  uint64_t part = 0;
};
// Nothing is under way there any more: what is kept for reaching this peer may go. It may be met again.
struct ForgetPeer {
  WorkerAddress peer;
};
// A result, once for each Begin: no push of this request is in flight any more, none of its blocks is digested, they
// may be reused.
struct HandoffCommitted {
  RequestId request_id;
  ReservationRef reservation;
  Incarnation decode_incarnation;
  int32_t blocks = 0;  // in the prompt's block table
  int64_t bytes_pushed = 0;
  uint64_t part = 0;
};
// The other result. UNAVAILABLE and RESOURCE_EXHAUSTED (the decode worker has no room) may be retried after
// `retry_after`; FAILED_PRECONDITION: the decode worker refuses to link; INVALID_ARGUMENT: the request can never fit;
// CANCELLED.
struct HandoffFailed {
  RequestId request_id;
  absl::Status status;
  absl::Duration retry_after;
  uint64_t part = 0;
};
// Since the start. Parts that go ahead of an open prompt are hand-offs, too.
struct HandoffTotals {
  std::map<absl::StatusCode, int64_t> ended;  // hand-offs, by their result
  int64_t blocks_pushed = 0;                  // of those that were committed
  int64_t blocks_held = 0;                    // of these the blocks that the decode worker had already
  int64_t expired_leases = 0;                 // of reservations: none of their heartbeats was answered in time
};
using SenderAction =
    std::variant<SendLink, OpenConnection, CloseConnection, SendReserve, SendCommit, SendRelease, SendHeartbeat,
                 PushBlocks, DigestBlocks, ForgetPeer, HandoffReserved, HandoffCommitted, HandoffFailed>;

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

  // REQUIRES: this part of the request has no hand-off without result here, BlocksFor(kv_tokens) >= keys.size().
  void Begin(HandoffJob job, absl::Time now);
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

  enum class LinkState { kUnlinked, kLinking, kLinked, kRefused, kLost };
  LinkState link_state(const WorkerAddress& peer) const;
  int64_t handoffs() const;  // that have no result yet
  bool idle() const;         // no hand-off, no push or digest under way, no release to repeat
  const HandoffTotals& totals() const { return totals_; }
  // Hand-offs and pushes that were looked at one by one in search of some of them. Only what is rare may search, such
  // as Tick, and not each of thousands of events.
  int64_t visits() const { return visits_; }
  void CheckInvariants() const;

 private:
  struct Peer {
    LinkState state = LinkState::kUnlinked;
    LinkId link;              // the current attempt or connection
    bool connecting = false;  // kLinking: the peer has agreed, the transport connects
    Incarnation incarnation;  // from here on: as the peer said when it was last linked
    int64_t slab_blocks = 0;
    absl::Duration lease;
    bool wants_digests = false;
    absl::Status problem;  // why lost or refused
    absl::Time retry_at;   // lost or refused: not asked again before
    absl::Time next_heartbeat;
    absl::Time last_used;  // a hand-off began, or was seen under way
  };
  // kDraining: failure is certain; the result waits for pushes and digests, the Release also for the reply that is due.
  enum class State { kWaitingForLink, kReserving, kWriting, kCommitting, kDraining };
  struct BlockProgress {
    BlockId source;
    BlockId target;
    bool missing = false;
    int64_t layers_ready = 0;   // [0, layers_ready) are in `source`
    int64_t layers_posted = 0;  // [0, layers_posted) are pushed or being pushed
  };
  struct Handoff {
    HandoffJob job;
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
    absl::Time fenced_at;               // the lease's end as we may count it
    std::vector<BlockProgress> blocks;  // [BlocksFor(kv_tokens)]
    int32_t missing = 0;                // blocks to push
    int32_t unposted = 0;               // of those, not posted in full
    int64_t pushes_in_flight = 0;
    int64_t digests_in_flight = 0;
    bool wants_digests = false;
    std::vector<int32_t> undigested;   // indices that are posted in full, not asked for yet
    std::vector<BlockDigest> digests;  // like `blocks`, of those that are missing; empty unless they are wanted
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
  struct PendingRelease {
    bool reply_pending = true;
    absl::Duration retry_every;
    absl::Time retry_at;
    absl::Time give_up_at;
  };

  // handoff_sender_links.cc
  void SeekLink(HandoffId id, absl::Time now);
  void StartLink(const WorkerAddress& to, Peer& peer);
  void OnLinked(const WorkerAddress& to, Peer& peer, absl::Time now);
  void Refuse(const WorkerAddress& to, Peer& peer, const absl::Status& why, absl::Time now);
  void LosePeer(const WorkerAddress& to, Peer& peer, const absl::Status& why, absl::Time now);
  void RestartPeer(const WorkerAddress& to, Peer& peer, absl::Time now);
  void CloseIfLinked(Peer& peer);
  std::pair<const WorkerAddress, Peer>* FindPeer(LinkId link);  // that is linking or linked by it, else null
  std::vector<HandoffId> HandoffsOf(const WorkerAddress& peer) const;
  std::vector<HandoffId> Renewable(LinkId link) const;
  bool HasRenewable(LinkId link) const;
  void RenewLease(const SentHeartbeat& heartbeat, const HeartbeatReply& reply, absl::Time now);
  static absl::Duration HeartbeatInterval(absl::Duration lease) { return lease / 4; }
  static bool IsRenewable(const Handoff& handoff);
  absl::flat_hash_set<WorkerAddress> BusyPeers() const;
  void TickPushes(absl::Time now);
  void TickHeartbeats(absl::Time now);
  void TickReleases(absl::Time now);
  void TickPeers(absl::Time now);

  // handoff_sender.cc
  Handoff* Find(HandoffId id);
  void Reserve(HandoffId id, Handoff& handoff, const Peer& peer, absl::Time now);
  void OnReserveError(HandoffId id, Handoff& handoff, const absl::Status& status, absl::Time now);
  void OnReserved(HandoffId id, Handoff& handoff, const Reserved& reserved, absl::Time now);
  absl::Status CheckMissing(const Handoff& handoff, const std::vector<MissingBlock>& missing) const;
  void CollectReady(Handoff& handoff, int32_t index, std::vector<BlockCopy>& copies);
  void Push(HandoffId id, Handoff& handoff, std::vector<BlockCopy> copies, absl::Time now);
  // handoff_sender_digests.cc
  void AskForDigests(HandoffId id, Handoff& handoff);
  static std::vector<BlockDigest> DigestsOfMissing(const Handoff& handoff);

  void MaybeCommit(HandoffId id, Handoff& handoff);
  void PostCommit(HandoffId id, Handoff& handoff);
  void TickHandoff(HandoffId id, Handoff& handoff, absl::Time now);
  void Fence(HandoffId id, Handoff& handoff, absl::Time now);
  void Fail(HandoffId id, absl::Status status, absl::Duration retry_after, absl::Time now);
  void MaybeFinish(HandoffId id, Handoff& handoff, absl::Time now);
  void ReleaseReservation(const Handoff& handoff, absl::Time now);
  void TickBy(absl::Time time) { next_tick_ = std::min(next_tick_, time); }
  absl::Time FindNextTick() const;

  HandoffSenderOptions options_;
  uint64_t next_id_ = 1;
  std::map<WorkerAddress, Peer> peers_;
  std::map<HandoffId, Handoff> handoffs_;                                      // in the order of Begin
  absl::flat_hash_map<std::pair<RequestId, uint64_t>, HandoffId> by_request_;  // and part; those without result
  std::map<HeartbeatId, SentHeartbeat> heartbeats_;
  std::map<PushId, PushInFlight> pushes_;
  std::map<DigestId, DigestInFlight> digests_;
  std::map<std::pair<WorkerAddress, ReservationRef>, PendingRelease> releases_;
  std::vector<SenderAction> actions_;
  absl::Time next_tick_ = absl::InfiniteFuture();
  HandoffTotals totals_;
  mutable int64_t visits_ = 0;
};

}  // namespace baton
