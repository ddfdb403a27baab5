#include "engine/handoff/peer_links.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/logging.h"

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

bool PeerLinks::IsCurrent(const Peer& peer) { return peer.state == State::kLinking || peer.state == State::kLinked; }

PeerLinks::Entry* PeerLinks::Find(LinkId link) {
  for (auto& entry : peers_) {
    if (IsCurrent(entry.second) && entry.second.link == link) return &entry;
  }
  return nullptr;
}

PeerLinks::State PeerLinks::state(const WorkerAddress& peer) const {
  const auto it = peers_.find(peer);
  return it == peers_.end() ? State::kUnlinked : it->second.state;
}

const PeerLinks::Peer& PeerLinks::LinkTo(const WorkerAddress& to, absl::Time now) {
  Peer& peer = peers_[to];
  peer.last_used = now;
  const bool must_wait = (peer.state == State::kRefused || peer.state == State::kLost) && now < peer.retry_at;
  if (peer.state != State::kLinked && peer.state != State::kLinking && !must_wait) Start(to, peer, now);
  return peer;
}

void PeerLinks::Start(const WorkerAddress& to, Peer& peer, absl::Time now) {
  peer.state = State::kLinking;
  peer.link_sent = now;
  peer.answers = AnswerWatch(options_.answer_within);
  peer.answers.Sent(now);
  peer.connecting = false;
  peer.link = LinkId(next_link_++);
  actions_.push_back(SendLink{peer.link, to, options_.self});
}

std::optional<PeerLinks::Change> PeerLinks::OnLinkReply(LinkId link, absl::StatusOr<LinkReply> reply, absl::Time now) {
  Entry* found = Find(link);
  if (found == nullptr || found->second.state != State::kLinking || found->second.connecting) return std::nullopt;
  found->second.answers.Ended(/*answered=*/true, now);
  if (!reply.ok()) {
    return absl::IsFailedPrecondition(reply.status()) ? Refuse(*found, reply.status(), now)
                                                      : LosePeer(*found, reply.status(), now);
  }
  if (const absl::Status status = CheckLinkReply(*reply); !status.ok()) return Refuse(*found, status, now);
  auto& [to, peer] = *found;
  const bool is_new_process = reply->decode_incarnation != peer.incarnation;
  peer.incarnation = reply->decode_incarnation;
  peer.writer = reply->writer;
  peer.slab_blocks = reply->slab_blocks;
  peer.lease = reply->lease;
  peer.wants_digests = reply->wants_digests;
  peer.connecting = true;
  peer.answers = AnswerWatch(std::max(options_.answer_within, 2 * (now - peer.link_sent)));
  if (reply->numerics_id != options_.self.numerics_id) {
    spdlog::warn("decode worker {} computes with '{}', this worker with '{}': their results may differ in bits", to,
                 reply->numerics_id, options_.self.numerics_id);
  }
  actions_.push_back(OpenConnection{link, to, std::move(reply->transport_descriptor)});
  return Change{to, is_new_process};
}

std::optional<PeerLinks::Change> PeerLinks::OnConnected(LinkId link, const absl::Status& status, absl::Time now,
                                                        bool ends_with_process) {
  Entry* found = Find(link);
  if (found == nullptr) {  // the link is no longer current, so no hand-off waits for it
    if (status.ok()) actions_.push_back(CloseConnection{link});
    return std::nullopt;
  }
  auto& [to, peer] = *found;
  if (peer.state != State::kLinking || !peer.connecting) return std::nullopt;
  // The messages of these errors name the difference between the two workers.
  if (absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status)) return Refuse(*found, status, now);
  if (!status.ok()) return LosePeer(*found, status, now);
  peer.state = State::kLinked;
  peer.mute = false;
  peer.ends_with_process = ends_with_process;
  peer.next_heartbeat = now;
  return Change{to};
}

PeerLinks::Change PeerLinks::Refuse(Entry& entry, const absl::Status& why, absl::Time now) {
  auto& [to, peer] = entry;
  peer.state = State::kRefused;
  peer.mute = false;
  peer.retry_at = now + options_.retry_refused_after;
  peer.problem =
      absl::FailedPreconditionError(absl::StrCat("decode worker ", to, " cannot be linked: ", why.message()));
  spdlog::error("{}", peer.problem.ToString());
  return {to};
}

void PeerLinks::CloseIfLinked(const Peer& peer) {
  if (peer.state == State::kLinked) actions_.push_back(CloseConnection{peer.link});
}

PeerLinks::Change PeerLinks::LosePeer(Entry& entry, const absl::Status& why, absl::Time now) {
  auto& [to, peer] = entry;
  CloseIfLinked(peer);
  peer.state = State::kLost;
  peer.retry_at = now + options_.relink_after;
  SetProblem(to, peer, why);
  return {to};
}

void PeerLinks::SetProblem(const WorkerAddress& to, Peer& peer, const absl::Status& why) {
  peer.problem = absl::UnavailableError(absl::StrCat("decode worker ", to, " was lost: ", why.message()));
  spdlog::warn("{}", peer.problem.ToString());
}

std::optional<PeerLinks::Change> PeerLinks::Lose(LinkId link, const absl::Status& why, absl::Time now) {
  Entry* found = Find(link);
  if (found == nullptr) return std::nullopt;
  return LosePeer(*found, why, now);
}

absl::Time PeerLinks::Sent(LinkId link, absl::Time now) {
  Entry* found = Find(link);
  if (found == nullptr) return absl::InfiniteFuture();
  found->second.answers.Sent(now);
  return found->second.answers.next_check();
}

void PeerLinks::Ended(LinkId link, const absl::Status& reply, absl::Time now) {
  const bool answered = !absl::IsDeadlineExceeded(reply);
  if (Entry* found = Find(link)) found->second.answers.Ended(answered, now);
}

std::vector<PeerLinks::Change> PeerLinks::FindMute(absl::Time now) {
  std::vector<Change> found;
  for (Entry& entry : peers_) {
    auto& [to, peer] = entry;
    if (!IsCurrent(peer) || !peer.answers.Check(now)) continue;
    if (peer.state == State::kLinking && peer.mute) continue;
    peer.mute = true;
    const absl::Status why = absl::UnavailableError(
        absl::StrCat("it has answered nothing for ", absl::FormatDuration(peer.answers.within())));
    if (peer.state == State::kLinked) {
      LosePeer(entry, why, now);
    } else {
      SetProblem(to, peer, why);
    }
    found.push_back({to});
  }
  return found;
}

std::optional<WorkerAddress> PeerLinks::Relink(LinkId link, absl::Time now) {
  Entry* found = Find(link);
  if (found == nullptr) return std::nullopt;
  auto& [to, peer] = *found;
  CloseIfLinked(peer);
  spdlog::warn("decode worker {} has restarted: linking again", to);
  Start(to, peer, now);
  return to;
}

void PeerLinks::Tick(absl::flat_hash_set<WorkerAddress> busy, absl::Time now) {
  for (auto it = peers_.begin(); it != peers_.end();) {
    auto& [address, peer] = *it;
    if (peer.state == State::kLinking || busy.contains(address)) peer.last_used = now;
    if (now < peer.last_used + options_.forget_idle) {
      ++it;
      continue;
    }
    CloseIfLinked(peer);
    actions_.push_back(ForgetPeer{address});
    it = peers_.erase(it);
  }
}

// Busy peers count too. At their time, Tick finds that they are busy and postpones it.
absl::Time PeerLinks::NextTick() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [address, peer] : peers_) {
    next = std::min(next, peer.last_used + options_.forget_idle);
    if (IsCurrent(peer)) next = std::min(next, peer.answers.next_check());
  }
  return next;
}

}  // namespace baton
