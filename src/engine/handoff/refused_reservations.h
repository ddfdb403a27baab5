// Reservations that a decode worker has refused with Wait, until it reports room for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "engine/handoff/admission.h"

namespace baton {

// Each refusal is followed by room for one request in one report, so no refused request waits in
// vain, and reports are no more than refusals. A report names no request: the router knows which of
// its requests is first in line. It may have ended, and another router may be faster; a request that
// is refused again is another refusal.
//
// There is a report only after RoomMayHaveCome. A router whose first request in line needs more than
// a report has room for is therefore refused once for each such event, and not again and again.
//
// Not thread-safe.
class RefusedReservations {
 public:
  // Keeps the sizes that the request asks for. Beyond 65,536 refusals the largest is forgotten.
  void Add(const ReserveRequest& request, int64_t blocks_now);
  // A sequence or a reservation has ended, or a reservation was granted: there may be room for more.
  void RoomMayHaveCome() { room_may_have_come_ = true; }
  // The number of refused reservations, the smallest first, that `fits` admits beside each other
  // now. Forgets them. The requests that `fits` gets have sizes alone.
  int64_t TakeFitting(absl::FunctionRef<bool(const ReserveRequest&, int64_t blocks_now)> fits);

 private:
  // Far above the live requests of all routers: a record beyond it belongs to a request that has ended.
  static constexpr size_t kMost = size_t{1} << 16;

  std::multimap<int64_t, std::pair<ReserveRequest, int64_t>> refused_;  // by blocks at their longest; with blocks_now
  bool room_may_have_come_ = false;                                     // since the last report
};

}  // namespace baton
