// Timers of requests.
#pragma once

#include <set>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "router/request.h"

namespace baton {

// Holds at most one time for each request. Placement::timer has the same time. Requests with equal
// times are ordered by id, so that runs repeat.
class RequestTimers {
 public:
  // Replaces the request's time. InfiniteFuture removes it.
  void Set(Request& request, absl::Time at);
  void Clear(Request& request) { Set(request, absl::InfiniteFuture()); }

  absl::Time Next() const;  // InfiniteFuture: none
  Request* First() const;   // null: none
  // Returns the requests whose times have come, in order. Their times stay set.
  std::vector<Request*> Due(absl::Time now) const;
  // `live`: all requests that have not ended.
  void CheckInvariants(const absl::flat_hash_set<Request*>& live) const;

 private:
  struct Earlier {
    bool operator()(const Request* a, const Request* b) const;
  };

  std::set<Request*, Earlier> order_;
};

}  // namespace baton
