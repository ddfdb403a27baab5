#include "engine/handoff/sender.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace baton {
namespace {

constexpr absl::Duration kShortestRetry = absl::Milliseconds(1);
// Upper bound on the duration of a push, in leases. A push takes milliseconds to seconds, and a
// lease takes some seconds. A push that takes longer than this bound counts as hanging.
constexpr int kMaxPushLeases = 2;

}  // namespace

HandoffSender::HandoffSender(HandoffSenderOptions options)
    : options_(std::move(options)),
      links_({options_.self, options_.relink_after, options_.retry_refused_after, options_.forget_idle,
              options_.answer_within},
             actions_),
      releases_(actions_) {}

HandoffSender::Handoff* HandoffSender::Find(HandoffId id) {
  const auto it = handoffs_.find(id);
  return it == handoffs_.end() ? nullptr : &it->second;
}

void HandoffSender::Begin(WorkerAddress decode_worker, ReserveRequest request, absl::Time now, uint64_t part) {
  BATON_CHECK(request.kv_tokens >= 0, "negative kv_tokens");
  BATON_CHECK(std::ssize(request.keys) == request.kv_tokens / kBlockTokens, "one key for each full block");
  const HandoffId id(next_id_++);
  BATON_CHECK(by_request_.emplace(std::pair(request.request_id, part), id).second,
              "this part of the request has a hand-off already");
  request.cache_only = part != 0;
  Handoff& handoff =
      handoffs_.try_emplace(id, std::move(decode_worker), std::move(request), part, options_.self.layout).first->second;
  handoff.give_up_at = now + options_.max_wait;
  EnsureLink(id, now);
}

void HandoffSender::BlocksReady(const RequestId& request, std::span<const ReadyBlock> blocks, absl::Time now,
                                uint64_t part) {
  const auto it = by_request_.find({request, part});
  if (it == by_request_.end()) return;
  const HandoffId id = it->second;
  Handoff& handoff = *Find(id);
  std::vector<BlockCopy> copies;
  for (const ReadyBlock& ready : blocks) {
    handoff.blocks.SetReady(ready);
    if (handoff.state == State::kWriting) handoff.blocks.TakeCopies(ready.index, copies);
  }
  if (handoff.state == State::kWriting) Push(id, handoff, std::move(copies), now);
}

void HandoffSender::Cancel(const RequestId& request, absl::Time now, uint64_t part) {
  const auto it = by_request_.find({request, part});
  if (it == by_request_.end()) return;
  Fail(it->second, absl::CancelledError("the request was cancelled"), absl::ZeroDuration(), now);
}

// --- links ---------------------------------------------------------------------------------------

// Sends Reserve if the peer is linked. Fails if the peer must not be linked before a later time, or
// was mute and is not linked again. In other cases the hand-off waits for the link.
void HandoffSender::EnsureLink(HandoffId id, absl::Time now) {
  Handoff& handoff = *Find(id);
  handoff.state = State::kWaitingForLink;
  const PeerLinks::Peer& peer = links_.LinkTo(handoff.decode_worker, now);
  TickNoLaterThan(std::min({handoff.give_up_at, now + options_.forget_idle, peer.answers.next_check()}));
  if (peer.state == LinkState::kLinked) {
    Reserve(id, handoff, peer, now);
  } else if (peer.state != LinkState::kLinking || peer.mute) {
    FailUnlinked(id, peer, now);
  }
}

std::vector<HandoffId> HandoffSender::HandoffsOf(const WorkerAddress& peer) const {
  std::vector<HandoffId> ids;
  for (const auto& [id, handoff] : handoffs_) {
    if (handoff.decode_worker == peer) ids.push_back(id);
  }
  return ids;
}

void HandoffSender::OnLinkReply(LinkId link, absl::StatusOr<LinkReply> reply, absl::Time now) {
  Follow(links_.OnLinkReply(link, std::move(reply), now), now);
}

void HandoffSender::OnConnected(LinkId link, const absl::Status& status, absl::Time now, bool ends_with_process) {
  Follow(links_.OnConnected(link, status, now, ends_with_process), now);
}

void HandoffSender::Follow(const std::optional<PeerLinks::Change>& change, absl::Time now) {
  if (!change.has_value()) return;
  // The reservations of the old process are gone.
  if (change->is_new_process) releases_.Forget(change->peer);
  const PeerLinks::Peer& peer = links_.peers().at(change->peer);
  if (peer.state == LinkState::kLinking && !peer.mute) return;
  for (HandoffId id : HandoffsOf(change->peer)) {
    Handoff& handoff = *Find(id);
    if (peer.state != LinkState::kLinked) {
      FailUnlinked(id, peer, now);
    } else if (handoff.state == State::kWaitingForLink) {
      Reserve(id, handoff, peer, now);
    }
  }
}

void HandoffSender::FailUnlinked(HandoffId id, const PeerLinks::Peer& peer, absl::Time now) {
  const bool linking = peer.state == LinkState::kLinking;
  Fail(id, peer.problem, linking ? options_.relink_after : peer.retry_at - now, now);
}

void HandoffSender::LosePeer(LinkId link, const absl::Status& why, absl::Time now) {
  Follow(links_.Lose(link, why, now), now);
}

// Fails the hand-offs that have a reservation, because it is gone with the peer's old process.
// Other hand-offs go on.
bool HandoffSender::RestartPeer(LinkId link, absl::Time now) {
  const std::optional<WorkerAddress> peer = links_.Relink(link, now);
  if (!peer.has_value()) return false;
  TickNoLaterThan(links_.peers().at(*peer).answers.next_check());
  for (HandoffId id : HandoffsOf(*peer)) {
    const Handoff& handoff = *Find(id);
    if (handoff.state != State::kWriting && handoff.state != State::kCommitting) continue;
    Fail(id, absl::UnavailableError(absl::StrCat("decode worker ", *peer, " has restarted")), options_.relink_after,
         now);
  }
  return true;
}

// --- one hand-off --------------------------------------------------------------------------------

void HandoffSender::Reserve(HandoffId id, Handoff& handoff, const PeerLinks::Peer& peer, absl::Time now) {
  handoff.state = State::kReserving;
  handoff.reply_pending = true;
  handoff.link = peer.link;
  handoff.request.writer = peer.writer;
  handoff.request.ends_with_process = peer.ends_with_process;
  handoff.lease = peer.lease;
  handoff.decode_incarnation = peer.incarnation;
  handoff.wants_digests = peer.wants_digests;
  handoff.reserve_sent = now;
  actions_.push_back(SendReserve{id, handoff.decode_worker, handoff.request});
  TickNoLaterThan(links_.Sent(handoff.link, now));
}

void HandoffSender::OnReserveReply(HandoffId id, absl::StatusOr<ReserveReply> reply, absl::Time now) {
  Handoff* handoff = Find(id);
  if (handoff == nullptr || handoff->reserved || !handoff->reply_pending) return;
  handoff->reply_pending = false;
  links_.Ended(handoff->link, reply.status(), now);
  const Reserved* reserved = reply.ok() ? std::get_if<Reserved>(&*reply) : nullptr;
  if (handoff->state == State::kDraining) {
    if (reserved != nullptr) {
      handoff->reserved = true;
      handoff->reservation = reserved->reservation;
    }
    MaybeFinish(id, *handoff, now);
  } else if (!reply.ok()) {
    OnReserveError(id, *handoff, reply.status(), now);
  } else if (reserved != nullptr) {
    OnReserved(id, *handoff, *reserved, now);
  } else if (std::holds_alternative<Wait>(*reply)) {
    Fail(id, absl::ResourceExhaustedError(absl::StrCat("decode worker ", handoff->decode_worker, " has no room")),
         absl::ZeroDuration(), now);
  } else {
    Fail(id, absl::InvalidArgumentError(std::get<NeverFits>(*reply).reason), absl::ZeroDuration(), now);
  }
}

void HandoffSender::OnReserveError(HandoffId id, Handoff& handoff, const absl::Status& status, absl::Time now) {
  const std::string what =
      absl::StrCat("reserving room at decode worker ", handoff.decode_worker, ": ", status.message());
  if (absl::IsFailedPrecondition(status) && !handoff.relinked) {
    handoff.relinked = true;
    handoff.state = State::kWaitingForLink;
    TickNoLaterThan(handoff.give_up_at);
    if (!RestartPeer(handoff.link, now)) EnsureLink(id, now);
    return;
  }
  if (absl::IsUnavailable(status)) LosePeer(handoff.link, status, now);
  const bool retryable = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                         absl::IsFailedPrecondition(status) || absl::IsCancelled(status);
  Fail(id, absl::Status(retryable ? absl::StatusCode::kUnavailable : status.code(), what), options_.relink_after, now);
}

void HandoffSender::OnReserved(HandoffId id, Handoff& handoff, const Reserved& reserved, absl::Time now) {
  handoff.reserved = true;
  handoff.reservation = reserved.reservation;
  handoff.write_key = reserved.write_key;
  handoff.fenced_at = handoff.reserve_sent + handoff.lease;
  const PeerLinks::Entry* peer = links_.Current(handoff.link);
  if (peer == nullptr) {
    Fail(id,
         absl::UnavailableError(absl::StrCat("the connection to decode worker ", handoff.decode_worker, " changed")),
         kShortestRetry, now);
    return;
  }
  absl::Status set = handoff.blocks.SetMissing(reserved.missing, peer->second.slab_blocks, peer->first);
  if (!set.ok()) {
    Fail(id, std::move(set), absl::ZeroDuration(), now);
    return;
  }
  if (!HasRenewable(handoff.link)) {  // no heartbeat is scheduled
    const absl::Time next = handoff.reserve_sent + HeartbeatInterval(handoff.lease);
    links_.SetNextHeartbeat(handoff.link, next);
    TickNoLaterThan(next);
  }
  TickNoLaterThan(handoff.fenced_at);
  handoff.state = State::kWriting;
  HandoffReserved notice{handoff.request.request_id, {}, handoff.part};
  std::vector<BlockCopy> copies;
  for (const MissingBlock& missing : reserved.missing) {
    notice.missing.push_back(missing.index);
    handoff.blocks.TakeCopies(missing.index, copies);
  }
  actions_.push_back(std::move(notice));
  Push(id, handoff, std::move(copies), now);
}

// Pushes `copies`, which may be empty, and commits if that completes the hand-off.
void HandoffSender::Push(HandoffId id, Handoff& handoff, std::vector<BlockCopy> copies, absl::Time now) {
  if (now >= handoff.fenced_at) return Fence(id, handoff, now);
  if (!copies.empty()) {
    const PushId push(next_id_++);
    // A connection that uses write keys has a deadline for each of its messages. A push in its
    // backlog may be older than the bound.
    const absl::Time give_up_at =
        handoff.write_key.has_value() ? absl::InfiniteFuture() : now + kMaxPushLeases * handoff.lease;
    pushes_.emplace(push, PushInFlight{id, give_up_at});
    TickNoLaterThan(give_up_at);
    ++handoff.pushes_in_flight;
    for (const BlockCopy& copy : copies) handoff.bytes_pushed += copy.bytes;
    actions_.push_back(PushBlocks{push, handoff.link, handoff.reservation, std::move(copies), handoff.write_key});
  }
  CoverPosted(id, handoff);
  MaybeCommit(id, handoff, now);
}

// Every block that a hand-off writes passes here once, after all of its layers are posted and
// before the Commit. The checksum of a block will be made here (planned). The Commit will carry it,
// and HandoffReceiver::Take will compare it. Today this method asks for the digests of --verify-kv,
// which are made while pushes and other steps run.
void HandoffSender::CoverPosted(HandoffId id, Handoff& handoff) {
  std::vector<int32_t> posted = handoff.blocks.TakePosted();
  if (posted.empty() || !handoff.wants_digests) return;
  const DigestId digest(next_id_++);
  DigestBlocks ask{digest, handoff.reservation, {}};
  for (const int32_t index : posted) ask.blocks.push_back(handoff.blocks.source(index));
  ++handoff.digests_in_flight;
  digests_.emplace(digest, DigestInFlight{id, std::move(posted)});
  actions_.push_back(std::move(ask));
}

void HandoffSender::OnDigests(DigestId id, const absl::StatusOr<std::vector<BlockDigest>>& digests, absl::Time now) {
  const auto it = digests_.find(id);
  if (it == digests_.end()) return;
  const DigestInFlight asked = std::move(it->second);
  digests_.erase(it);
  Handoff& handoff = *Find(asked.handoff);  // exists, since its result waits for its digests
  --handoff.digests_in_flight;
  if (digests.ok()) {
    handoff.blocks.SetDigests(asked.indices, *digests);
    MaybeCommit(asked.handoff, handoff, now);
    MaybeFinish(asked.handoff, handoff, now);
  } else if (handoff.state == State::kDraining) {
    MaybeFinish(asked.handoff, handoff, now);
  } else {
    Fail(asked.handoff, digests.status(), absl::ZeroDuration(), now);
  }
}

void HandoffSender::OnPushDone(PushId push, const absl::Status& status, absl::Time now) {
  const auto it = pushes_.find(push);
  if (it == pushes_.end()) return;
  const HandoffId id = it->second.handoff;
  pushes_.erase(it);
  --Find(id)->pushes_in_flight;
  if (absl::IsUnavailable(status)) {
    Find(id)->drained = false;
    LosePeer(Find(id)->link, status, now);
  }
  Handoff* handoff = Find(id);  // null if LosePeer has ended the hand-off
  if (handoff == nullptr) return;
  // The reservation has probably ended at the decode worker. A retry makes another reservation.
  if (absl::IsPermissionDenied(status)) {
    Fail(id,
         absl::UnavailableError(
             absl::StrCat("decode worker ", handoff->decode_worker, " refused a KV write: ", status.message())),
         options_.relink_after, now);
  } else if (!status.ok()) {
    Fail(id, status, options_.relink_after, now);
  }
  if (handoff = Find(id); handoff == nullptr) return;
  MaybeCommit(id, *handoff, now);
  MaybeFinish(id, *handoff, now);
}

void HandoffSender::MaybeCommit(HandoffId id, Handoff& handoff, absl::Time now) {
  if (handoff.state != State::kWriting || !handoff.blocks.posted()) return;
  if (handoff.pushes_in_flight > 0 || handoff.digests_in_flight > 0) return;
  handoff.state = State::kCommitting;
  PostCommit(id, handoff, now);
}

void HandoffSender::PostCommit(HandoffId id, Handoff& handoff, absl::Time now) {
  handoff.reply_pending = true;
  Commit commit{
      .reservation = handoff.reservation, .blocks_written = handoff.blocks.missing(), .write_key = handoff.write_key};
  if (handoff.wants_digests) commit.digests = handoff.blocks.Digests();
  actions_.push_back(SendCommit{id, handoff.decode_worker, std::move(commit)});
  TickNoLaterThan(links_.Sent(handoff.link, now));
}

void HandoffSender::OnCommitReply(HandoffId id, const absl::Status& status, absl::Time now) {
  Handoff* handoff = Find(id);
  if (handoff == nullptr || !handoff->reserved || !handoff->reply_pending) return;
  handoff->reply_pending = false;
  links_.Ended(handoff->link, status, now);
  if (handoff->state == State::kDraining) {
    MaybeFinish(id, *handoff, now);
    return;
  }
  if (status.ok()) {
    ++totals_.ended[absl::StatusCode::kOk];
    totals_.blocks_pushed += handoff->blocks.missing();
    // Early hand-offs do not count, because each of them finds the blocks of the earlier ones.
    if (handoff->part == 0) totals_.blocks_held += handoff->blocks.size() - handoff->blocks.missing();
    actions_.push_back(HandoffCommitted{handoff->request.request_id, handoff->reservation, handoff->decode_incarnation,
                                        handoff->blocks.size(), handoff->bytes_pushed, handoff->part});
    by_request_.erase({handoff->request.request_id, handoff->part});
    handoffs_.erase(id);
    return;
  }
  if (absl::IsDeadlineExceeded(status) && now < handoff->fenced_at) {
    PostCommit(id, *handoff, now);
    return;
  }
  const auto failure = absl::UnavailableError(
      absl::StrCat("decode worker ", handoff->decode_worker, " did not take the commit: ", status.message()));
  // LosePeer fails all hand-offs to the peer, including this one.
  if (absl::IsUnavailable(status)) LosePeer(handoff->link, status, now);
  Fail(id, failure, kShortestRetry, now);
}

void HandoffSender::Fail(HandoffId id, absl::Status status, absl::Duration retry_after, absl::Time now) {
  Handoff* handoff = Find(id);
  if (handoff == nullptr || handoff->state == State::kDraining) return;
  handoff->state = State::kDraining;
  handoff->failure = std::move(status);
  handoff->retry_after = retry_after;
  MaybeFinish(id, *handoff, now);
}

void HandoffSender::MaybeFinish(HandoffId id, Handoff& handoff, absl::Time now) {
  if (handoff.state != State::kDraining || handoff.pushes_in_flight > 0 || handoff.digests_in_flight > 0) return;
  if (!handoff.reported) {
    handoff.reported = true;
    ++totals_.ended[handoff.failure.code()];
    by_request_.erase({handoff.request.request_id, handoff.part});
    actions_.push_back(HandoffFailed{handoff.request.request_id, handoff.failure, handoff.retry_after, handoff.part});
  }
  if (handoff.reply_pending) return;
  if (handoff.reserved && handoff.drained) {  // the decode worker frees the blocks at once
    releases_.Send(handoff.decode_worker, handoff.reservation, handoff.lease, handoff.lease / 4, now);
  }
  handoffs_.erase(id);
}

// --- leases --------------------------------------------------------------------------------------

// Returns true if the hand-off may still write under its reservation.
bool HandoffSender::IsRenewable(const Handoff& handoff) {
  return handoff.state == State::kWriting || handoff.state == State::kCommitting ||
         (handoff.state == State::kDraining && handoff.pushes_in_flight > 0);
}

std::vector<HandoffId> HandoffSender::Renewable(LinkId link) const {
  visits_ += std::ssize(handoffs_);
  std::vector<HandoffId> ids;
  for (const auto& [id, handoff] : handoffs_) {
    if (IsRenewable(handoff) && handoff.link == link) ids.push_back(id);
  }
  return ids;
}

bool HandoffSender::HasRenewable(LinkId link) const {
  return std::ranges::any_of(handoffs_, [&](const auto& entry) {
    ++visits_;
    return IsRenewable(entry.second) && entry.second.link == link;
  });
}

void HandoffSender::TickHeartbeats(absl::Time now) {
  for (const auto& [to, peer] : links_.peers()) {
    if (peer.state != LinkState::kLinked || now < peer.next_heartbeat) continue;
    SentHeartbeat sent{peer.link, now, Renewable(peer.link)};
    if (sent.renews.empty()) continue;
    Heartbeat heartbeat{peer.writer, {}};
    for (HandoffId id : sent.renews) heartbeat.active.push_back(Find(id)->reservation);
    const HeartbeatId id(next_id_++);
    heartbeats_.emplace(id, std::move(sent));
    actions_.push_back(SendHeartbeat{id, to, std::move(heartbeat)});
    links_.SetNextHeartbeat(peer.link, now + HeartbeatInterval(peer.lease));
    links_.Sent(peer.link, now);  // Tick computes the next tick
  }
}

void HandoffSender::OnHeartbeatReply(HeartbeatId id, absl::StatusOr<HeartbeatReply> reply, absl::Time now) {
  const auto it = heartbeats_.find(id);
  if (it == heartbeats_.end()) return;
  const SentHeartbeat heartbeat = std::move(it->second);
  heartbeats_.erase(it);
  links_.Ended(heartbeat.link, reply.status(), now);
  if (links_.Current(heartbeat.link) == nullptr) return;
  if (reply.ok()) {
    RenewLease(heartbeat, *reply, now);
  } else if (absl::IsFailedPrecondition(reply.status())) {
    RestartPeer(heartbeat.link, now);
  } else if (absl::IsUnavailable(reply.status())) {
    LosePeer(heartbeat.link, reply.status(), now);
  }  // After other errors, the next heartbeat may succeed. If none does, the lease ends.
}

void HandoffSender::RenewLease(const SentHeartbeat& heartbeat, const HeartbeatReply& reply, absl::Time now) {
  for (HandoffId id : heartbeat.renews) {
    Handoff* handoff = Find(id);
    if (handoff == nullptr) continue;
    const bool revoked = std::ranges::find(reply.revoked, handoff->reservation) != reply.revoked.end();
    if (!revoked) {
      handoff->fenced_at = std::max(handoff->fenced_at, heartbeat.sent + handoff->lease);
    } else if (handoff->state == State::kWriting) {  // in kCommitting, the Commit's reply decides
      Fail(id, absl::UnavailableError("the decode worker gave up the reservation"), options_.relink_after, now);
    }
  }
}

void HandoffSender::OnReleaseReply(const WorkerAddress& from, const ReservationRef& reservation,
                                   const absl::Status& status, absl::Time now) {
  TickNoLaterThan(releases_.OnReply(from, reservation, status, now));
}

// Ends a hand-off whose lease has ended. The peer answers no heartbeats, so a push that is still in
// flight hangs. Closing the connection ends the push.
void HandoffSender::Fence(HandoffId id, Handoff& handoff, absl::Time now) {
  const absl::Status status = absl::UnavailableError("the lease of the reservation ran out");
  totals_.expired_leases += handoff.state != State::kDraining;
  if (handoff.pushes_in_flight > 0) LosePeer(handoff.link, status, now);
  Fail(id, status, kShortestRetry, now);
}

// --- time ----------------------------------------------------------------------------------------

void HandoffSender::Tick(absl::Time now) {
  std::vector<HandoffId> ids;
  for (const auto& [id, handoff] : handoffs_) ids.push_back(id);
  visits_ += std::ssize(ids) + std::ssize(pushes_);
  for (HandoffId id : ids) {
    if (Handoff* handoff = Find(id)) TickHandoff(id, *handoff, now);
  }
  TickPushes(now);
  TickMute(now);
  TickHeartbeats(now);
  releases_.Tick(now);
  links_.Tick(BusyPeers(), now);
  next_tick_ = FindNextTick();
}

void HandoffSender::TickPushes(absl::Time now) {
  std::vector<LinkId> hanging;
  for (const auto& [id, push] : pushes_) {
    if (now >= push.give_up_at) hanging.push_back(Find(push.handoff)->link);
  }
  for (LinkId link : hanging)
    LosePeer(link, absl::UnavailableError("a push has been in flight for two lease times"), now);
}

void HandoffSender::TickMute(absl::Time now) {
  for (const PeerLinks::Change& mute : links_.FindMute(now)) {
    ++totals_.mute_peers;
    Follow(mute, now);
  }
}

void HandoffSender::TickHandoff(HandoffId id, Handoff& handoff, absl::Time now) {
  switch (handoff.state) {
    case State::kWaitingForLink:
      if (now >= handoff.give_up_at) {
        Fail(id,
             absl::UnavailableError(absl::StrCat("no link to decode worker ", handoff.decode_worker, " within ",
                                                 absl::FormatDuration(options_.max_wait))),
             options_.relink_after, now);
      }
      break;
    case State::kWriting:
    case State::kCommitting:
      if (now >= handoff.fenced_at) Fence(id, handoff, now);
      break;
    // The hand-off has failed already, so Fence only closes the connection.
    case State::kDraining:
      if (handoff.pushes_in_flight > 0 && now >= handoff.fenced_at) Fence(id, handoff, now);
      break;
    case State::kReserving:
      break;
  }
}

// Returns the peers from which an answer is due or will be.
absl::flat_hash_set<WorkerAddress> HandoffSender::BusyPeers() const {
  absl::flat_hash_set<WorkerAddress> busy;
  for (const auto& [id, handoff] : handoffs_) busy.insert(handoff.decode_worker);
  releases_.AddPeers(busy);
  absl::flat_hash_set<LinkId> beating;
  for (const auto& [id, heartbeat] : heartbeats_) beating.insert(heartbeat.link);
  for (const auto& [address, peer] : links_.peers()) {
    if (beating.contains(peer.link)) busy.insert(address);
  }
  return busy;
}

absl::Time HandoffSender::FindNextTick() const {
  visits_ += std::ssize(handoffs_) + std::ssize(pushes_);
  absl::Time next = std::min(links_.NextTick(), releases_.NextTick());
  absl::flat_hash_set<LinkId> open;  // linked: they can be closed, and have heartbeats
  for (const auto& [address, peer] : links_.peers()) {
    if (peer.state == LinkState::kLinked) open.insert(peer.link);
  }
  absl::flat_hash_set<LinkId> renewable;
  for (const auto& [id, handoff] : handoffs_) {
    if (IsRenewable(handoff) && open.contains(handoff.link)) {
      renewable.insert(handoff.link);
      if (handoff.state == State::kDraining) next = std::min(next, handoff.fenced_at);
    }
    if (handoff.state == State::kWaitingForLink) next = std::min(next, handoff.give_up_at);
    if (handoff.state == State::kWriting || handoff.state == State::kCommitting) {
      next = std::min(next, handoff.fenced_at);
    }
  }
  for (const auto& [address, peer] : links_.peers()) {
    if (peer.state == LinkState::kLinked && renewable.contains(peer.link)) next = std::min(next, peer.next_heartbeat);
  }
  for (const auto& [id, push] : pushes_) {
    if (open.contains(handoffs_.at(push.handoff).link)) next = std::min(next, push.give_up_at);
  }
  return next;
}

std::vector<SenderAction> HandoffSender::TakeActions() { return std::exchange(actions_, {}); }

int64_t HandoffSender::handoffs() const { return static_cast<int64_t>(by_request_.size()); }

bool HandoffSender::idle() const {
  return handoffs_.empty() && pushes_.empty() && digests_.empty() && releases_.empty();
}

void HandoffSender::CheckInvariants() const {
  size_t unreported = 0;
  int64_t pushes = 0;
  int64_t digests = 0;
  for (const auto& [id, handoff] : handoffs_) {
    pushes += handoff.pushes_in_flight;
    digests += handoff.digests_in_flight;
    const bool at_rest = handoff.pushes_in_flight == 0 && handoff.digests_in_flight == 0;
    BATON_CHECK(handoff.reported == (handoff.state == State::kDraining && at_rest),
                "a failure is reported exactly when its pushes and digests have finished");
    BATON_CHECK(!handoff.reported || handoff.reply_pending, "a finished hand-off is kept");
    BATON_CHECK(handoff.pushes_in_flight == 0 || handoff.reserved, "pushed without a reservation");
    if (!handoff.reported) {
      ++unreported;
      const auto it = by_request_.find({handoff.request.request_id, handoff.part});
      BATON_CHECK(it != by_request_.end() && it->second == id, "a hand-off cannot be found by its request");
    }
    handoff.blocks.CheckInvariants();
  }
  BATON_CHECK(unreported == by_request_.size(), "a request without hand-off");
  BATON_CHECK(next_tick_ <= FindNextTick(), "next_tick_ is too late");
  BATON_CHECK(pushes == static_cast<int64_t>(pushes_.size()), "pushes miscounted");
  BATON_CHECK(digests == static_cast<int64_t>(digests_.size()), "digests miscounted");
}

}  // namespace baton
