// The reservations that a decode worker has refused with Wait and for which it has not reported
// room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "engine/handoff/admission.h"

namespace baton {

// Each refusal is followed by a report of room for one request, unless Add has forgotten it. There
// are at most as many reports as refusals. A report names no request, because the router chooses
// its first request in line. That request may have ended, and another router may take the room
// first. A request that is refused again counts as another refusal.
//
// A report is made only after RoomMayHaveCome. If the router's first request needs more room than
// was reported, it is therefore refused at most once per RoomMayHaveCome.
//
// Not thread-safe.
class RefusedReservations {
 public:
  // Keeps kv_tokens and expected_new_tokens of the request. Beyond kMaxRefused requests, forgets
  // the largest.
  void Add(const ReserveRequest& request, int64_t blocks_now);
  // Records that there may be room: a sequence, a reservation or a quarantine has ended, or a
  // reservation was granted.
  void RoomMayHaveCome() { may_fit_ = true; }
  // Returns how many refused reservations `fits` admits beside each other now, the smallest first.
  // Forgets them. `fits` gets requests with kv_tokens and expected_new_tokens alone.
  int64_t TakeFitting(absl::FunctionRef<bool(const ReserveRequest&, int64_t blocks_now)> fits);

 private:
  // Bounds memory. Beyond it, the largest entry is dropped. If its request still waits, no report
  // of room follows for it.
  static constexpr size_t kMaxRefused = size_t{1} << 16;

  // Requests with their blocks_now, by the upper bound on their blocks.
  std::multimap<int64_t, std::pair<ReserveRequest, int64_t>> refused_;
  bool may_fit_ = false;  // since the last report
};

}  // namespace baton
