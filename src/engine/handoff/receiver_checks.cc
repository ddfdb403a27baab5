// The receiving side's checks: whether what lies in written blocks is what their writer has read. UCX asks nobody who
// writes, so a forged write is kept out by a WriteGuard alone, whose worker has no UCX; else it can only be noticed.
#include <utility>

#include "base/check.h"
#include "base/logging.h"
#include "base/status.h"
#include "engine/handoff/receiver.h"

namespace baton {

ClaimedKv HandoffReceiver::TakeKv(Reservation& reservation) {
  return {std::move(reservation.table), std::move(reservation.keys), reservation.kv_tokens};
}

void HandoffReceiver::BeginCheck(Reservations::iterator it) {
  to_be_checked_.push_back(it->first);
  checks_.insert(reservations_.extract(it));
}

std::optional<BlockCheck> HandoffReceiver::NextCheck() {
  if (to_be_checked_.empty()) return std::nullopt;
  const ReservationId id = to_be_checked_.front();
  to_be_checked_.pop_front();
  const Reservation& reservation = checks_.at(id);
  const std::span<const BlockId> written = reservation.table.ids().subspan(reservation.held);
  return BlockCheck{id, {written.begin(), written.end()}};
}

absl::Status HandoffReceiver::Compare(const Reservation& reservation,
                                      const absl::StatusOr<std::vector<BlockDigest>>& digests) const {
  RETURN_IF_ERROR(digests.status());
  BATON_CHECK(digests->size() == reservation.digests.size(), "digests of other blocks");
  for (size_t i = 0; i < digests->size(); ++i) {
    if ((*digests)[i] == reservation.digests[i]) continue;
    // Not which digests: who reads logs could confirm a prompt that he guessed.
    return absl::DataLossError(absl::StrCat(
        "request ", reservation.request_id, ": KV block ", reservation.held + i, " of ", reservation.table.size(),
        " is not what the prefill worker sent: it was damaged on its way, or somebody else wrote there"));
  }
  return absl::OkStatus();
}

std::optional<absl::StatusOr<ClaimedKv>> HandoffReceiver::OnDigests(
    ReservationId check, const absl::StatusOr<std::vector<BlockDigest>>& digests, absl::Time now) {
  Tick(now);
  auto taken = checks_.extract(check);
  BATON_CHECK(!taken.empty(), "digests of a check that is over");
  Reservation& reservation = taken.mapped();
  const absl::Status same = Compare(reservation, digests);
  if (!same.ok()) {
    failed_checks_ += absl::IsDataLoss(same);
    spdlog::error("{}", same.ToString());
  } else {
    ShareWrittenBlocks(reservation);
  }
  if (reservation.cache_only) return std::nullopt;
  if (!same.ok()) return same;
  return TakeKv(reservation);
}

}  // namespace baton
