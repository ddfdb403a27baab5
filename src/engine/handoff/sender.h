// The prefill worker's side of the hand-off (docs/design/overview.md, section 4). A state machine:
// events and the time come in, and actions go out.
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

// Counts since the start. Early hand-offs of streaming prompts count too.
struct HandoffTotals {
  std::map<absl::StatusCode, int64_t> ended;  // hand-offs, by their result
  int64_t blocks_pushed = 0;                  // of committed hand-offs
  // Blocks of committed hand-offs of part 0 that the decode worker held already.
  int64_t blocks_held = 0;
  // Reservations whose lease ended because no heartbeat was answered in time.
  int64_t expired_leases = 0;
  // How often a decode worker became mute: it owed answers and sent none for `answer_within`.
  int64_t mute_peers = 0;
};
struct HandoffSenderOptions {
  // PeerLinksOptions describes `self` and the last four fields.
  LinkRequest self;
  absl::Duration max_wait = absl::Seconds(30);  // upper bound on the wait of a hand-off for a link
  absl::Duration relink_after = absl::Seconds(1);
  absl::Duration retry_refused_after = absl::Seconds(10);
  absl::Duration forget_idle = absl::Minutes(10);
  absl::Duration answer_within = absl::Seconds(2);
};

// Moves the KV of requests to decode workers. A hand-off goes through these stages:
//
// 1. Begin links to the decode worker, unless the two are linked, and sends Reserve.
// 2. The decode worker reserves room. Blocks that are ready and missing there are pushed.
//    Heartbeats renew the lease of the reservation.
// 3. When all missing blocks are pushed, the sender commits. The result is HandoffCommitted.
//
// These rules hold:
//
// - A hand-off that finds no room fails at once. The router waits for room, or chooses another
//   decode worker. Meanwhile other requests can use the blocks.
// - No block is pushed under a reservation after its lease has ended. The lease counts from the
//   time at which the Reserve, or the last answered heartbeat, was sent.
// - A hand-off that fails after room was reserved is released when its pushes have finished. If the
//   connection broke during a push, there is no release, because bytes in flight may still be
//   written.
// - A push hangs if it is in flight at the end of the lease. A push without a write key also hangs
//   if it is in flight for kMaxPushLeases leases. The sender then closes the connection, which ends
//   the push.
// - A peer that owes answers and sends none for `answer_within` is mute. Its hand-offs fail, also
//   later ones, until the two are linked again.
//
// docs/design/handoff_leases.md gives the reasons.
//
// Not thread-safe. The caller must call TakeActions after each event. Events about unknown ids are
// ignored, because an id is forgotten when its hand-off or message has ended.
class HandoffSender {
 public:
  explicit HandoffSender(HandoffSenderOptions options);
  HandoffSender(const HandoffSender&) = delete;
  HandoffSender& operator=(const HandoffSender&) = delete;

  // Begins to move the request's KV to `decode_worker`. Part 0 is the hand-off of all KV, and a
  // Start follows. The other parts are early hand-offs, which only fill the decode worker's cache.
  // They may run beside other hand-offs of the request. The sender sets `writer` and `cache_only`.
  // REQUIRES: no hand-off of this part of the request is without a result, and `keys` has one key
  // for each full block.
  void Begin(WorkerAddress decode_worker, ReserveRequest request, absl::Time now, uint64_t part = 0);
  // Reports blocks as ready to be pushed, before or after room is reserved. Blocks that are not
  // missing are not pushed. Does nothing if the request is unknown, because its hand-off may just
  // have failed. REQUIRES: index < BlocksFor(kv_tokens). For an index, `layers` never shrinks and
  // `source` never changes.
  void BlocksReady(const RequestId& request, std::span<const ReadyBlock> blocks, absl::Time now, uint64_t part = 0);
  // Ends the hand-off. Its result is HandoffFailed with CANCELLED, at once or when its pushes and
  // digests have finished. Does nothing if there is no such hand-off.
  void Cancel(const RequestId& request, absl::Time now, uint64_t part = 0);
  // Does all that is due at `now`. May be called at any time, and must be called at NextTick().
  void Tick(absl::Time now);

  void OnLinkReply(LinkId link, absl::StatusOr<LinkReply> reply, absl::Time now);
  void OnConnected(LinkId link, const absl::Status& status, absl::Time now, bool ends_with_process = false);
  void OnReserveReply(HandoffId handoff, absl::StatusOr<ReserveReply> reply, absl::Time now);
  void OnCommitReply(HandoffId handoff, const absl::Status& status, absl::Time now);
  void OnReleaseReply(const WorkerAddress& from, const ReservationRef& reservation, const absl::Status& status,
                      absl::Time now);
  void OnHeartbeatReply(HeartbeatId heartbeat, absl::StatusOr<HeartbeatReply> reply, absl::Time now);
  void OnPushDone(PushId push, const absl::Status& status, absl::Time now);
  // An error of `digests` fails the hand-off.
  void OnDigests(DigestId id, const absl::StatusOr<std::vector<BlockDigest>>& digests, absl::Time now);

  std::vector<SenderAction> TakeActions();
  // Returns a time at or before the next time at which something is due, or InfiniteFuture if
  // nothing waits for time.
  absl::Time NextTick() const { return next_tick_; }

  using LinkState = PeerLinks::State;
  LinkState link_state(const WorkerAddress& peer) const { return links_.state(peer); }
  int64_t handoffs() const;  // hand-offs without a result
  bool idle() const;         // no hand-off, push or digest in flight, and no release to repeat
  const HandoffTotals& totals() const { return totals_; }
  // Counts the hand-offs and pushes that linear searches have visited, for tests. Only rare events
  // such as Tick may search linearly, since there may be thousands of hand-offs and events.
  int64_t visits() const { return visits_; }
  void CheckInvariants() const;

 private:
  // kDraining: the hand-off has failed. Its result waits for pushes and digests in flight. Its
  // Release also waits for a pending reply.
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
    absl::Time give_up_at;       // in kWaitingForLink
    bool reply_pending = false;  // to Reserve or Commit
    bool relinked = false;       // Reserve found once that the peer had restarted
    LinkId link;                 // for Reserve and the pushes
    absl::Time reserve_sent;
    bool reserved = false;
    ReservationRef reservation;
    std::optional<WriteKey> write_key;
    Incarnation decode_incarnation;
    absl::Duration lease;
    absl::Time fenced_at;  // end of the lease, counted from the time of sending
    int64_t pushes_in_flight = 0;
    int64_t digests_in_flight = 0;
    bool wants_digests = false;
    int64_t bytes_pushed = 0;
    bool drained = true;    // false: a push broke off, and its bytes may still be written
    bool reported = false;  // the result is in actions_
    absl::Status failure;   // in kDraining
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

  // Links. The hand-offs to a peer follow its state.
  void EnsureLink(HandoffId id, absl::Time now);
  void Follow(const std::optional<PeerLinks::Change>& change, absl::Time now);
  void FailUnlinked(HandoffId id, const PeerLinks::Peer& peer, absl::Time now);
  void LosePeer(LinkId link, const absl::Status& why, absl::Time now);
  bool RestartPeer(LinkId link, absl::Time now);  // false: the link is not current
  std::vector<HandoffId> HandoffsOf(const WorkerAddress& peer) const;

  // Leases.
  // While a push is in flight, only heartbeats show whether the peer is mute.
  absl::Duration HeartbeatInterval(absl::Duration lease) const {
    return std::min(lease / 4, options_.answer_within / 2);
  }
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
  void MaybeCommit(HandoffId id, Handoff& handoff, absl::Time now);
  void PostCommit(HandoffId id, Handoff& handoff, absl::Time now);
  void Fail(HandoffId id, absl::Status status, absl::Duration retry_after, absl::Time now);
  void MaybeFinish(HandoffId id, Handoff& handoff, absl::Time now);

  void TickHandoff(HandoffId id, Handoff& handoff, absl::Time now);
  void TickPushes(absl::Time now);
  void TickMute(absl::Time now);
  void TickHeartbeats(absl::Time now);
  absl::flat_hash_set<WorkerAddress> BusyPeers() const;
  void TickNoLaterThan(absl::Time time) { next_tick_ = std::min(next_tick_, time); }
  absl::Time FindNextTick() const;

  HandoffSenderOptions options_;
  std::vector<SenderAction> actions_;
  PeerLinks links_;
  ReleaseRetries releases_;
  uint64_t next_id_ = 1;
  std::map<HandoffId, Handoff> handoffs_;  // in the order of Begin
  // Hand-offs without a result, by request and part.
  absl::flat_hash_map<std::pair<RequestId, uint64_t>, HandoffId> by_request_;
  std::map<HeartbeatId, SentHeartbeat> heartbeats_;
  std::map<PushId, PushInFlight> pushes_;
  std::map<DigestId, DigestInFlight> digests_;
  absl::Time next_tick_ = absl::InfiniteFuture();
  HandoffTotals totals_;
  mutable int64_t visits_ = 0;
};

}  // namespace baton
