#include "engine/handoff/sender.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/status.h"

namespace baton {
namespace {

constexpr absl::Duration kShortestRetry = absl::Milliseconds(1);
// Leases. Blocks take milliseconds to seconds, a lease is some seconds; what takes longer than this never ends.
constexpr int kOldestPush = 2;

}  // namespace

HandoffSender::HandoffSender(HandoffSenderOptions options) : options_(std::move(options)) {}

HandoffSender::Handoff* HandoffSender::Find(HandoffId id) {
  const auto it = handoffs_.find(id);
  return it == handoffs_.end() ? nullptr : &it->second;
}

void HandoffSender::Begin(HandoffJob job, absl::Time now) {
  BATON_CHECK(job.kv_tokens >= 0, "negative kv_tokens");
  const int64_t blocks = BlocksFor(job.kv_tokens);
  BATON_CHECK(static_cast<int64_t>(job.keys.size()) == job.kv_tokens / kBlockTokens, "one key for each full block");
  const HandoffId id(next_id_++);
  BATON_CHECK(by_request_.emplace(std::pair(job.request_id, job.part), id).second,
              "this part of the request has a hand-off already");
  Handoff& handoff = handoffs_[id];
  handoff.job = std::move(job);
  handoff.give_up_at = now + options_.max_wait;
  handoff.blocks.resize(static_cast<size_t>(blocks));
  SeekLink(id, now);
}

void HandoffSender::BlocksReady(const RequestId& request, std::span<const ReadyBlock> blocks, absl::Time now,
                                uint64_t part) {
  const auto it = by_request_.find({request, part});
  if (it == by_request_.end()) return;
  const HandoffId id = it->second;
  Handoff& handoff = *Find(id);
  std::vector<BlockCopy> copies;
  for (const ReadyBlock& ready : blocks) {
    BATON_CHECK(ready.index >= 0 && static_cast<size_t>(ready.index) < handoff.blocks.size(), "no such block");
    BlockProgress& block = handoff.blocks[static_cast<size_t>(ready.index)];
    BATON_CHECK(ready.layers >= block.layers_ready && ready.layers <= options_.self.layout.layers, "layers went back");
    BATON_CHECK(block.layers_ready == 0 || block.source == ready.source, "a block's source changed");
    block.source = ready.source;
    block.layers_ready = ready.layers;
    if (handoff.state == State::kWriting) CollectReady(handoff, ready.index, copies);
  }
  if (handoff.state == State::kWriting) Push(id, handoff, std::move(copies), now);
}

void HandoffSender::Cancel(const RequestId& request, absl::Time now, uint64_t part) {
  const auto it = by_request_.find({request, part});
  if (it == by_request_.end()) return;
  Fail(it->second, absl::CancelledError("the request was cancelled"), absl::ZeroDuration(), now);
}

void HandoffSender::Reserve(HandoffId id, Handoff& handoff, const Peer& peer, absl::Time now) {
  handoff.state = State::kReserving;
  handoff.reply_pending = true;
  handoff.link = peer.link;
  handoff.lease = peer.lease;
  handoff.decode_incarnation = peer.incarnation;
  handoff.wants_digests = peer.wants_digests;
  handoff.reserve_sent = now;
  const HandoffJob& job = handoff.job;
  actions_.push_back(SendReserve{id, job.decode_worker,
                                 ReserveRequest{.request_id = job.request_id,
                                                .writer = options_.self.prefill_incarnation,
                                                .keys = job.keys,
                                                .kv_tokens = job.kv_tokens,
                                                .max_new_tokens = job.max_new_tokens,
                                                .cache_only = job.part != 0}});
}

void HandoffSender::OnReserveReply(HandoffId id, absl::StatusOr<ReserveReply> reply, absl::Time now) {
  Handoff* handoff = Find(id);
  if (handoff == nullptr || handoff->reserved || !handoff->reply_pending) return;
  handoff->reply_pending = false;
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
  } else if (const auto* retry = std::get_if<RetryAfter>(&*reply)) {
    Fail(id, absl::ResourceExhaustedError(absl::StrCat("decode worker ", handoff->job.decode_worker, " has no room")),
         std::max(retry->after, kShortestRetry), now);
  } else {
    Fail(id, absl::InvalidArgumentError(std::get<NeverFits>(*reply).reason), absl::ZeroDuration(), now);
  }
}

void HandoffSender::OnReserveError(HandoffId id, Handoff& handoff, const absl::Status& status, absl::Time now) {
  const std::string what =
      absl::StrCat("reserving room at decode worker ", handoff.job.decode_worker, ": ", status.message());
  auto* found = FindPeer(handoff.link);  // null: this peer is already known to be lost or to have restarted
  if (absl::IsFailedPrecondition(status) && !handoff.relinked) {
    handoff.relinked = true;
    handoff.state = State::kWaitingForLink;
    TickBy(handoff.give_up_at);
    if (found != nullptr) {
      RestartPeer(found->first, found->second, now);
    } else {
      SeekLink(id, now);
    }
    return;
  }
  if (absl::IsUnavailable(status) && found != nullptr) LosePeer(found->first, found->second, status, now);
  const bool retryable = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                         absl::IsFailedPrecondition(status) || absl::IsCancelled(status);
  Fail(id, absl::Status(retryable ? absl::StatusCode::kUnavailable : status.code(), what), options_.relink_after, now);
}

// A peer's answer is not trusted: indices must be ours and ascending, targets inside its slab and distinct.
absl::Status HandoffSender::CheckMissing(const Handoff& handoff, const std::vector<MissingBlock>& missing) const {
  const auto peer = peers_.find(handoff.job.decode_worker);
  absl::flat_hash_set<BlockId> targets;
  int64_t last = -1;
  for (const MissingBlock& block : missing) {
    if (block.index <= last || static_cast<size_t>(block.index) >= handoff.blocks.size()) {
      return absl::InternalError(absl::StrCat("decode worker ", peer->first, " asks for block ", block.index, " after ",
                                              last, " of a table of ", handoff.blocks.size()));
    }
    if (block.target.value() >= peer->second.slab_blocks || !targets.insert(block.target).second) {
      return absl::InternalError(absl::StrCat("decode worker ", peer->first, " gives target ", block.target.value(),
                                              " twice or beyond its slab of ", peer->second.slab_blocks, " blocks"));
    }
    last = block.index;
  }
  return absl::OkStatus();
}

void HandoffSender::OnReserved(HandoffId id, Handoff& handoff, const Reserved& reserved, absl::Time now) {
  handoff.reserved = true;
  handoff.reservation = reserved.reservation;
  handoff.right = reserved.right;
  handoff.fenced_at = handoff.reserve_sent + handoff.lease;
  auto* found = FindPeer(handoff.link);
  if (found == nullptr) {
    Fail(
        id,
        absl::UnavailableError(absl::StrCat("the connection to decode worker ", handoff.job.decode_worker, " changed")),
        kShortestRetry, now);
    return;
  }
  if (absl::Status status = CheckMissing(handoff, reserved.missing); !status.ok()) {
    Fail(id, std::move(status), absl::ZeroDuration(), now);
    return;
  }
  if (!HasRenewable(handoff.link)) {  // no heartbeat is due
    found->second.next_heartbeat = handoff.reserve_sent + HeartbeatInterval(handoff.lease);
    TickBy(found->second.next_heartbeat);
  }
  TickBy(handoff.fenced_at);
  handoff.state = State::kWriting;
  handoff.missing = handoff.unposted = static_cast<int32_t>(reserved.missing.size());
  HandoffReserved notice{handoff.job.request_id, {}, handoff.job.part};
  std::vector<BlockCopy> copies;
  for (const MissingBlock& missing : reserved.missing) {
    BlockProgress& block = handoff.blocks[static_cast<size_t>(missing.index)];
    block.missing = true;
    block.target = missing.target;
    notice.missing.push_back(missing.index);
    CollectReady(handoff, missing.index, copies);
  }
  actions_.push_back(std::move(notice));
  Push(id, handoff, std::move(copies), now);
}

void HandoffSender::CollectReady(Handoff& handoff, int32_t index, std::vector<BlockCopy>& copies) {
  BlockProgress& block = handoff.blocks[static_cast<size_t>(index)];
  if (!block.missing || block.layers_posted == block.layers_ready) return;
  const KvLayout& layout = options_.self.layout;
  const int64_t skip = block.layers_posted * layout.LayerBytes();
  copies.push_back({.source_offset = block.source.value() * layout.BlockBytes() + skip,
                    .target_offset = block.target.value() * layout.BlockBytes() + skip,
                    .bytes = (block.layers_ready - block.layers_posted) * layout.LayerBytes()});
  block.layers_posted = block.layers_ready;
  if (block.layers_posted < layout.layers) return;
  --handoff.unposted;
  if (handoff.wants_digests) handoff.undigested.push_back(index);
}

// Also with nothing to push: then it may be time to commit.
void HandoffSender::Push(HandoffId id, Handoff& handoff, std::vector<BlockCopy> copies, absl::Time now) {
  if (now >= handoff.fenced_at) return Fence(id, handoff, now);
  if (!copies.empty()) {
    const PushId push(next_id_++);
    // A link that shows rights gives each of its messages a time, and a backlog on it may be older.
    const absl::Time give_up_at =
        handoff.right.has_value() ? absl::InfiniteFuture() : now + kOldestPush * handoff.lease;
    pushes_.emplace(push, PushInFlight{id, give_up_at});
    TickBy(give_up_at);
    ++handoff.pushes_in_flight;
    for (const BlockCopy& copy : copies) handoff.bytes_pushed += copy.bytes;
    actions_.push_back(PushBlocks{push, handoff.link, handoff.reservation, std::move(copies), handoff.right});
  }
  if (!handoff.undigested.empty()) AskForDigests(id, handoff);
  MaybeCommit(id, handoff);
}

// A push that is still in flight at a lease's end hangs on a peer that answers no heartbeat: the connection is broken
// off, so that it ends.
void HandoffSender::Fence(HandoffId id, Handoff& handoff, absl::Time now) {
  const absl::Status status = absl::UnavailableError("the lease of the reservation ran out");
  totals_.expired_leases += handoff.state != State::kDraining;
  auto* found = handoff.pushes_in_flight > 0 ? FindPeer(handoff.link) : nullptr;
  if (found != nullptr) LosePeer(found->first, found->second, status, now);
  Fail(id, status, kShortestRetry, now);
}

void HandoffSender::OnPushDone(PushId push, const absl::Status& status, absl::Time now) {
  const auto it = pushes_.find(push);
  if (it == pushes_.end()) return;
  const HandoffId id = it->second.handoff;
  pushes_.erase(it);
  --Find(id)->pushes_in_flight;
  if (absl::IsUnavailable(status)) {
    Find(id)->drained = false;
    if (auto* found = FindPeer(Find(id)->link)) LosePeer(found->first, found->second, status, now);
  }
  Handoff* handoff = Find(id);  // losing the peer may have ended it
  if (handoff == nullptr) return;
  if (absl::IsPermissionDenied(status)) {  // its reservation is over there, most likely; another one may do
    Fail(id,
         absl::UnavailableError(
             absl::StrCat("decode worker ", handoff->job.decode_worker, " refused a KV write: ", status.message())),
         options_.relink_after, now);
  } else if (!status.ok()) {
    Fail(id, status, options_.relink_after, now);
  }
  if (handoff = Find(id); handoff == nullptr) return;
  MaybeCommit(id, *handoff);
  MaybeFinish(id, *handoff, now);
}

void HandoffSender::MaybeCommit(HandoffId id, Handoff& handoff) {
  if (handoff.state != State::kWriting || handoff.unposted > 0) return;
  if (handoff.pushes_in_flight > 0 || handoff.digests_in_flight > 0) return;
  handoff.state = State::kCommitting;
  PostCommit(id, handoff);
}

void HandoffSender::PostCommit(HandoffId id, Handoff& handoff) {
  handoff.reply_pending = true;
  actions_.push_back(
      SendCommit{id, handoff.job.decode_worker,
                 Commit{handoff.reservation, handoff.missing, DigestsOfMissing(handoff), handoff.right}});
}

void HandoffSender::OnCommitReply(HandoffId id, const absl::Status& status, absl::Time now) {
  Handoff* handoff = Find(id);
  if (handoff == nullptr || !handoff->reserved || !handoff->reply_pending) return;
  handoff->reply_pending = false;
  if (handoff->state == State::kDraining) {
    MaybeFinish(id, *handoff, now);
    return;
  }
  if (status.ok()) {
    ++totals_.ended[absl::StatusCode::kOk];
    totals_.blocks_pushed += handoff->missing;
    // Each part of a growing prompt finds what the ones before it brought.
    if (handoff->job.part == 0) totals_.blocks_held += std::ssize(handoff->blocks) - handoff->missing;
    actions_.push_back(HandoffCommitted{handoff->job.request_id, handoff->reservation, handoff->decode_incarnation,
                                        static_cast<int32_t>(handoff->blocks.size()), handoff->bytes_pushed,
                                        handoff->job.part});
    by_request_.erase({handoff->job.request_id, handoff->job.part});
    handoffs_.erase(id);
    return;
  }
  if (absl::IsDeadlineExceeded(status) && now < handoff->fenced_at) {
    PostCommit(id, *handoff);
    return;
  }
  const auto failure = absl::UnavailableError(
      absl::StrCat("decode worker ", handoff->job.decode_worker, " did not take the commit: ", status.message()));
  if (absl::IsUnavailable(status)) {  // ends all hand-offs to it, this one too
    if (auto* found = FindPeer(handoff->link)) LosePeer(found->first, found->second, status, now);
  }
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
    by_request_.erase({handoff.job.request_id, handoff.job.part});
    actions_.push_back(HandoffFailed{handoff.job.request_id, handoff.failure, handoff.retry_after, handoff.job.part});
  }
  if (handoff.reply_pending) return;
  if (handoff.reserved && handoff.drained) ReleaseReservation(handoff, now);
  handoffs_.erase(id);
}

void HandoffSender::Tick(absl::Time now) {
  std::vector<HandoffId> ids;
  for (const auto& [id, handoff] : handoffs_) ids.push_back(id);
  visits_ += std::ssize(ids) + std::ssize(pushes_);
  for (HandoffId id : ids) {
    if (Handoff* handoff = Find(id)) TickHandoff(id, *handoff, now);
  }
  TickPushes(now);
  TickHeartbeats(now);
  TickReleases(now);
  TickPeers(now);
  next_tick_ = FindNextTick();
}

void HandoffSender::TickPushes(absl::Time now) {
  std::vector<LinkId> hanging;
  for (const auto& [id, push] : pushes_) {
    if (now >= push.give_up_at) hanging.push_back(Find(push.handoff)->link);
  }
  for (LinkId link : hanging) {
    if (auto* found = FindPeer(link)) {  // null: closed already
      LosePeer(found->first, found->second, absl::UnavailableError("a push does not end"), now);
    }
  }
}

void HandoffSender::TickHandoff(HandoffId id, Handoff& handoff, absl::Time now) {
  switch (handoff.state) {
    case State::kWaitingForLink:
      if (now >= handoff.give_up_at) {
        Fail(id,
             absl::UnavailableError(absl::StrCat("no link to decode worker ", handoff.job.decode_worker, " within ",
                                                 absl::FormatDuration(options_.max_wait))),
             options_.relink_after, now);
      }
      break;
    case State::kWriting:
    case State::kCommitting:
      if (now >= handoff.fenced_at) Fence(id, handoff, now);
      break;
    case State::kDraining:  // fails once more, which changes nothing, but breaks off what is in flight
      if (handoff.pushes_in_flight > 0 && now >= handoff.fenced_at) Fence(id, handoff, now);
      break;
    case State::kReserving:
      break;
  }
}

absl::Time HandoffSender::FindNextTick() const {
  visits_ += std::ssize(handoffs_) + std::ssize(pushes_);
  absl::Time next = absl::InfiniteFuture();
  absl::flat_hash_set<LinkId> open;  // links that can be closed, and that a heartbeat is due on
  for (const auto& [address, peer] : peers_) {
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
  for (const auto& [address, peer] : peers_) {
    if (peer.state == LinkState::kLinked && renewable.contains(peer.link)) next = std::min(next, peer.next_heartbeat);
  }
  for (const auto& [id, push] : pushes_) {
    if (open.contains(handoffs_.at(push.handoff).link)) next = std::min(next, push.give_up_at);
  }
  for (const auto& [key, release] : releases_) {
    if (!release.reply_pending) next = std::min(next, release.retry_at);
  }
  // Of a busy one as well: TickPeers sees then that it is, and looks again after as long.
  for (const auto& [address, peer] : peers_) next = std::min(next, peer.last_used + options_.forget_idle);
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
                "a failure is reported when its pushes and digests have finished, no sooner and no later");
    BATON_CHECK(!handoff.reported || handoff.reply_pending, "a finished hand-off is kept");
    BATON_CHECK(handoff.pushes_in_flight == 0 || handoff.reserved, "pushed without a reservation");
    if (!handoff.reported) {
      ++unreported;
      const auto it = by_request_.find({handoff.job.request_id, handoff.job.part});
      BATON_CHECK(it != by_request_.end() && it->second == id, "a hand-off cannot be found by its request");
    }
    int32_t unposted = 0;
    for (const BlockProgress& block : handoff.blocks) {
      BATON_CHECK(block.layers_posted <= block.layers_ready, "pushed what is not ready");
      BATON_CHECK(block.missing || block.layers_posted == 0, "pushed what is not missing");
      if (block.missing && block.layers_posted < options_.self.layout.layers) ++unposted;
    }
    BATON_CHECK(unposted == handoff.unposted, "unposted blocks miscounted");
  }
  BATON_CHECK(unreported == by_request_.size(), "a request without hand-off");
  BATON_CHECK(next_tick_ <= FindNextTick(), "something would be done too late");
  BATON_CHECK(pushes == static_cast<int64_t>(pushes_.size()), "pushes miscounted");
  BATON_CHECK(digests == static_cast<int64_t>(digests_.size()), "digests miscounted");
}

}  // namespace baton
