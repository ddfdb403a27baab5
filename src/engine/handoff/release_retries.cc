#include "engine/handoff/release_retries.h"

#include <algorithm>

namespace baton {

void ReleaseRetries::Send(const WorkerAddress& to, const ReservationRef& reservation, absl::Duration lease,
                          absl::Duration retry_every, absl::Time now) {
  releases_[{to, reservation}] = {
      .retry_every = retry_every, .retry_at = {}, .give_up_at = now + (kQuarantineLeases + 1) * lease};
  actions_.push_back(SendRelease{to, Release{reservation}});
}

absl::Time ReleaseRetries::OnReply(const WorkerAddress& from, const ReservationRef& reservation,
                                   const absl::Status& status, absl::Time now) {
  const auto it = releases_.find({from, reservation});
  if (it == releases_.end() || !it->second.reply_pending) return absl::InfiniteFuture();
  const bool undelivered = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (!undelivered || now >= it->second.give_up_at) {
    releases_.erase(it);
    return absl::InfiniteFuture();
  }
  it->second.reply_pending = false;
  it->second.retry_at = now + it->second.retry_every;
  return it->second.retry_at;
}

void ReleaseRetries::Forget(const WorkerAddress& peer) {
  std::erase_if(releases_, [&](const auto& release) { return release.first.first == peer; });
}

void ReleaseRetries::Tick(absl::Time now) {
  for (auto& [key, release] : releases_) {
    if (release.reply_pending || now < release.retry_at) continue;
    release.reply_pending = true;
    actions_.push_back(SendRelease{key.first, Release{key.second}});
  }
}

absl::Time ReleaseRetries::NextTick() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [key, release] : releases_) {
    if (!release.reply_pending) next = std::min(next, release.retry_at);
  }
  return next;
}

void ReleaseRetries::AddPeers(absl::flat_hash_set<WorkerAddress>& peers) const {
  for (const auto& [key, release] : releases_) peers.insert(key.first);
}

}  // namespace baton
