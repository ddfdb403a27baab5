// When requests want to be looked at again.
#pragma once

#include <set>
#include <vector>

#include "absl/time/time.h"
#include "router/request.h"

namespace baton {

// Holds at most one time for each request, which is also in Placement::timer. Equal times are in the
// order of ids, so that runs repeat.
class RequestTimers {
 public:
  void Set(Request& request, absl::Time at);  // InfiniteFuture: none
  void Clear(Request& request) { Set(request, absl::InfiniteFuture()); }

  absl::Time Next() const;                          // InfiniteFuture: none
  Request* First() const;                           // null: none
  std::vector<Request*> Due(absl::Time now) const;  // in order; their times stay set
  size_t size() const { return order_.size(); }

 private:
  struct Earlier {
    bool operator()(const Request* a, const Request* b) const;
  };

  std::set<Request*, Earlier> order_;
};

}  // namespace baton
