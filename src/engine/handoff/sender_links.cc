// The links of the hand-off's sending side: what is known of each decode worker, heartbeats, and releases on their way.
#include <algorithm>

#include "base/check.h"
#include "base/logging.h"
#include "base/status.h"
#include "engine/handoff/sender.h"

namespace baton {
namespace {

constexpr absl::Duration kShortestLease = absl::Milliseconds(10);
constexpr absl::Duration kLongestLease = absl::Hours(1);

absl::Status CheckLinkReply(const LinkReply& reply) {
  if (reply.slab_blocks < 0 || reply.slab_blocks > int64_t{1} << 32) {
    return absl::InvalidArgumentError(
        absl::StrCat("slab of ", reply.slab_blocks, " blocks, expected 0 to 2^32 blocks"));
  }
  if (reply.lease < kShortestLease || reply.lease > kLongestLease) {
    return absl::InvalidArgumentError(absl::StrCat("lease of ", absl::FormatDuration(reply.lease), ", expected ",
                                                   absl::FormatDuration(kShortestLease), " to ",
                                                   absl::FormatDuration(kLongestLease)));
  }
  return absl::OkStatus();
}

}  // namespace

std::pair<const WorkerAddress, HandoffSender::Peer>* HandoffSender::FindPeer(LinkId link) {
  for (auto& entry : peers_) {
    const Peer& peer = entry.second;
    const bool current = peer.state == LinkState::kLinking || peer.state == LinkState::kLinked;
    if (current && peer.link == link) return &entry;
  }
  return nullptr;
}

std::vector<HandoffId> HandoffSender::HandoffsOf(const WorkerAddress& peer) const {
  std::vector<HandoffId> ids;
  for (const auto& [id, handoff] : handoffs_) {
    if (handoff.job.decode_worker == peer) ids.push_back(id);
  }
  return ids;
}

// Asks for room if the peer is linked; otherwise waits for the link, or fails if the peer is to be left alone.
void HandoffSender::SeekLink(HandoffId id, absl::Time now) {
  Handoff& handoff = *Find(id);
  const WorkerAddress& to = handoff.job.decode_worker;
  Peer& peer = peers_[to];
  handoff.state = State::kWaitingForLink;
  peer.last_used = now;
  TickBy(std::min(handoff.give_up_at, now + options_.forget_idle));
  if (peer.state == LinkState::kLinked) {
    Reserve(id, handoff, peer, now);
  } else if (peer.state != LinkState::kLinking) {
    if (now < peer.retry_at && peer.state != LinkState::kUnlinked) {
      Fail(id, peer.problem, peer.retry_at - now, now);
    } else {
      StartLink(to, peer);
    }
  }
}

void HandoffSender::StartLink(const WorkerAddress& to, Peer& peer) {
  peer.state = LinkState::kLinking;
  peer.connecting = false;
  peer.link = LinkId(next_id_++);
  actions_.push_back(SendLink{peer.link, to, options_.self});
}

void HandoffSender::OnLinkReply(LinkId link, absl::StatusOr<LinkReply> reply, absl::Time now) {
  auto* found = FindPeer(link);
  if (found == nullptr || found->second.state != LinkState::kLinking || found->second.connecting) return;
  auto& [to, peer] = *found;
  if (!reply.ok()) {
    if (absl::IsFailedPrecondition(reply.status())) {
      Refuse(to, peer, reply.status(), now);
    } else {
      LosePeer(to, peer, reply.status(), now);
    }
    return;
  }
  if (absl::Status status = CheckLinkReply(*reply); !status.ok()) {
    Refuse(to, peer, status, now);
    return;
  }
  if (reply->decode_incarnation != peer.incarnation) {  // nobody is left who knows of the old one's reservations
    std::erase_if(releases_, [&](const auto& release) { return release.first.first == to; });
  }
  peer.incarnation = reply->decode_incarnation;
  peer.slab_blocks = reply->slab_blocks;
  peer.lease = reply->lease;
  peer.wants_digests = reply->wants_digests;
  peer.connecting = true;
  if (reply->numerics_id != options_.self.numerics_id) {
    spdlog::warn("decode worker {} computes with '{}', this worker with '{}': no bit equality between them", to,
                 reply->numerics_id, options_.self.numerics_id);
  }
  actions_.push_back(OpenConnection{link, to, std::move(reply->transport_descriptor)});
}

void HandoffSender::OnConnected(LinkId link, const absl::Status& status, absl::Time now) {
  auto* found = FindPeer(link);
  if (found == nullptr) {  // nobody waits for it any more
    if (status.ok()) actions_.push_back(CloseConnection{link});
    return;
  }
  auto& [to, peer] = *found;
  if (peer.state != LinkState::kLinking || !peer.connecting) return;
  if (absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status)) {  // says what differs
    Refuse(to, peer, status, now);
  } else if (!status.ok()) {
    LosePeer(to, peer, status, now);
  } else {
    OnLinked(to, peer, now);
  }
}

void HandoffSender::OnLinked(const WorkerAddress& to, Peer& peer, absl::Time now) {
  peer.state = LinkState::kLinked;
  peer.next_heartbeat = now;
  for (HandoffId id : HandoffsOf(to)) {
    Handoff& handoff = *Find(id);
    if (handoff.state == State::kWaitingForLink) Reserve(id, handoff, peer, now);
  }
}

void HandoffSender::Refuse(const WorkerAddress& to, Peer& peer, const absl::Status& why, absl::Time now) {
  peer.state = LinkState::kRefused;
  peer.retry_at = now + options_.refused_again;
  peer.problem =
      absl::FailedPreconditionError(absl::StrCat("decode worker ", to, " cannot be linked: ", why.message()));
  spdlog::error("{}", peer.problem.ToString());
  for (HandoffId id : HandoffsOf(to)) Fail(id, peer.problem, options_.refused_again, now);
}

void HandoffSender::CloseIfLinked(Peer& peer) {
  if (peer.state == LinkState::kLinked) actions_.push_back(CloseConnection{peer.link});
}

void HandoffSender::LosePeer(const WorkerAddress& to, Peer& peer, const absl::Status& why, absl::Time now) {
  CloseIfLinked(peer);
  peer.state = LinkState::kLost;
  peer.retry_at = now + options_.relink_after;
  peer.problem = absl::UnavailableError(absl::StrCat("decode worker ", to, " was lost: ", why.message()));
  spdlog::warn("{}", peer.problem.ToString());
  for (HandoffId id : HandoffsOf(to)) Fail(id, peer.problem, options_.relink_after, now);
}

// The peer does not know us any more. What it had reserved went with its old process; hand-offs that have nothing there
// yet do not notice.
void HandoffSender::RestartPeer(const WorkerAddress& to, Peer& peer, absl::Time now) {
  CloseIfLinked(peer);
  spdlog::warn("decode worker {} has restarted: linking again", to);
  StartLink(to, peer);
  for (HandoffId id : HandoffsOf(to)) {
    const Handoff& handoff = *Find(id);
    if (handoff.state != State::kWriting && handoff.state != State::kCommitting) continue;
    Fail(id, absl::UnavailableError(absl::StrCat("decode worker ", to, " has restarted")), options_.relink_after, now);
  }
}

// Its reservation may still be written to.
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
  for (auto& [to, peer] : peers_) {
    if (peer.state != LinkState::kLinked || now < peer.next_heartbeat) continue;
    SentHeartbeat sent{peer.link, now, Renewable(peer.link)};
    if (sent.renews.empty()) continue;
    Heartbeat heartbeat{options_.self.prefill_incarnation, {}};
    for (HandoffId id : sent.renews) heartbeat.active.push_back(Find(id)->reservation);
    const HeartbeatId id(next_id_++);
    heartbeats_.emplace(id, std::move(sent));
    actions_.push_back(SendHeartbeat{id, to, std::move(heartbeat)});
    peer.next_heartbeat = now + HeartbeatInterval(peer.lease);
  }
}

void HandoffSender::OnHeartbeatReply(HeartbeatId id, absl::StatusOr<HeartbeatReply> reply, absl::Time now) {
  const auto it = heartbeats_.find(id);
  if (it == heartbeats_.end()) return;
  const SentHeartbeat heartbeat = std::move(it->second);
  heartbeats_.erase(it);
  auto* found = FindPeer(heartbeat.link);
  if (found == nullptr) return;
  if (reply.ok()) {
    RenewLease(heartbeat, *reply, now);
  } else if (absl::IsFailedPrecondition(reply.status())) {
    RestartPeer(found->first, found->second, now);
  } else if (absl::IsUnavailable(reply.status())) {
    LosePeer(found->first, found->second, reply.status(), now);
  }  // Otherwise the next one may get through; if none does, the lease runs out.
}

void HandoffSender::RenewLease(const SentHeartbeat& heartbeat, const HeartbeatReply& reply, absl::Time now) {
  for (HandoffId id : heartbeat.renews) {
    Handoff* handoff = Find(id);
    if (handoff == nullptr) continue;
    const bool revoked = std::ranges::find(reply.revoked, handoff->reservation) != reply.revoked.end();
    if (!revoked) {
      handoff->fenced_at = std::max(handoff->fenced_at, heartbeat.sent + handoff->lease);
    } else if (handoff->state == State::kWriting) {  // the Commit's own reply decides about one that is committing
      Fail(id, absl::UnavailableError("the decode worker gave up the reservation"), options_.relink_after, now);
    }
  }
}

// Gives the blocks back at once. Repeated until the receiver would free them anyway.
void HandoffSender::ReleaseReservation(const Handoff& handoff, absl::Time now) {
  const absl::Duration retry_every = HeartbeatInterval(handoff.lease);
  releases_[{handoff.job.decode_worker, handoff.reservation}] = PendingRelease{
      .retry_every = retry_every, .retry_at = {}, .give_up_at = now + (kQuarantineLeases + 1) * handoff.lease};
  actions_.push_back(SendRelease{handoff.job.decode_worker, Release{handoff.reservation}});
}

void HandoffSender::OnReleaseReply(const WorkerAddress& from, const ReservationRef& reservation,
                                   const absl::Status& status, absl::Time now) {
  const auto it = releases_.find({from, reservation});
  if (it == releases_.end() || !it->second.reply_pending) return;
  const bool undelivered = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (!undelivered || now >= it->second.give_up_at) {
    releases_.erase(it);
    return;
  }
  it->second.reply_pending = false;
  it->second.retry_at = now + it->second.retry_every;
  TickBy(it->second.retry_at);
}

void HandoffSender::TickReleases(absl::Time now) {
  for (auto& [key, release] : releases_) {
    if (release.reply_pending || now < release.retry_at) continue;
    release.reply_pending = true;
    actions_.push_back(SendRelease{key.first, Release{key.second}});
  }
}

// An answer from there is due, or will be.
absl::flat_hash_set<WorkerAddress> HandoffSender::BusyPeers() const {
  absl::flat_hash_set<WorkerAddress> busy;
  absl::flat_hash_set<LinkId> beating;
  for (const auto& [id, handoff] : handoffs_) busy.insert(handoff.job.decode_worker);
  for (const auto& [key, release] : releases_) busy.insert(key.first);
  for (const auto& [id, heartbeat] : heartbeats_) beating.insert(heartbeat.link);
  for (const auto& [address, peer] : peers_) {
    if (peer.state == LinkState::kLinking || beating.contains(peer.link)) busy.insert(address);
  }
  return busy;
}

void HandoffSender::TickPeers(absl::Time now) {
  const absl::flat_hash_set<WorkerAddress> busy = BusyPeers();
  for (auto it = peers_.begin(); it != peers_.end();) {
    auto& [address, peer] = *it;
    if (busy.contains(address)) peer.last_used = now;
    if (now < peer.last_used + options_.forget_idle) {
      ++it;
      continue;
    }
    CloseIfLinked(peer);
    actions_.push_back(ForgetPeer{address});
    it = peers_.erase(it);
  }
}

HandoffSender::LinkState HandoffSender::link_state(const WorkerAddress& peer) const {
  const auto it = peers_.find(peer);
  return it == peers_.end() ? LinkState::kUnlinked : it->second.state;
}

}  // namespace baton
