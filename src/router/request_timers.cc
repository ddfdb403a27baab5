#include "router/request_timers.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace baton {

bool RequestTimers::Earlier::operator()(const Request* a, const Request* b) const {
  return std::tie(a->placement.timer, a->id) < std::tie(b->placement.timer, b->id);
}

void RequestTimers::Set(Request& request, absl::Time at) {
  absl::Time& timer = request.placement.timer;
  if (timer != absl::InfiniteFuture()) order_.erase(&request);
  timer = at;
  if (timer != absl::InfiniteFuture()) order_.insert(&request);
}

absl::Time RequestTimers::Next() const {
  return order_.empty() ? absl::InfiniteFuture() : (*order_.begin())->placement.timer;
}

Request* RequestTimers::First() const { return order_.empty() ? nullptr : *order_.begin(); }

std::vector<Request*> RequestTimers::Due(absl::Time now) const {
  std::vector<Request*> due;
  for (Request* request : order_) {
    if (request->placement.timer > now) break;
    due.push_back(request);
  }
  return due;
}

void RequestTimers::CheckInvariants(const absl::flat_hash_set<Request*>& live) const {
  const auto timers = std::ranges::count_if(
      live, [](const Request* request) { return request->placement.timer != absl::InfiniteFuture(); });
  BATON_CHECK(timers == std::ssize(order_), "an ended request has a timer");
}

}  // namespace baton
