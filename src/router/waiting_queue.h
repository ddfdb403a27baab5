// The queue of requests that wait for a worker, or for room on a worker.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/ids.h"
#include "router/request.h"
#include "router/tenant_shares.h"

namespace baton {

// Tenants alternate. A tenant's requests are ordered by priority, then by Route::queue_order, then
// by submission.
class WaitingQueue {
 public:
  struct Before {
    bool operator()(const Request* a, const Request* b) const;
  };

  // `most`: upper bound on waiting requests. `shares` must outlive this.
  WaitingQueue(int32_t most, const TenantShares& shares) : most_(most), shares_(shares) {}

  // Does nothing if the request is in the queue.
  void Add(Request& request);
  // Does nothing if the request is not in the queue.
  void Remove(Request& request);
  bool Contains(const Request& request) const;
  int32_t size() const { return static_cast<int32_t>(queue_.size()); }

  // Returns whether a request may wait. A tenant that has more waiting requests than the queue has
  // free slots may not add one.
  bool HasRoom(const RequestSpec& spec) const;
  // Returns each tenant's first request, then each tenant's second request, and so on. Each round
  // begins with the tenant that was served least recently.
  std::vector<Request*> InServiceOrder() const;
  // Returns the request that asks the worker next. Among tenants with requests that the worker has
  // refused, this is the first request of the tenant that was served least recently. Excludes
  // requests for which another worker keeps room. Null if there is none.
  Request* FirstRefusedBy(const WorkerAddress& link) const;
  // Returns the request for which the worker keeps room next. Candidates wait for room at this
  // worker, since `since` or longer, and no worker keeps room for them. The result is the oldest
  // candidate of the tenant that was served least recently. Null if there is none.
  Request* LongestRefusedBy(const WorkerAddress& link, absl::Time since) const;

  using Requests = std::set<Request*, Before>;
  const Requests& all() const { return queue_; }

 private:
  const int32_t most_;
  const TenantShares& shares_;
  Requests queue_;  // requests of all tenants
};

}  // namespace baton
