// The queue of requests that wait for a worker, or for room on a worker.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "router/request.h"
#include "router/tenant_order.h"

namespace baton {

// TenantOrder orders the tenants. A tenant's requests are ordered by priority, then by
// Route::queue_order, then by submission.
class WaitingQueue {
 public:
  struct Before {
    bool operator()(const Request* a, const Request* b) const;
  };

  // `most`: upper bound on waiting requests. `tenants` must outlive this.
  WaitingQueue(int32_t most, TenantOrder& tenants) : most_(most), tenants_(tenants) {}

  // Does nothing if the request is in the queue.
  void Add(Request& request);
  // Does nothing if the request is not in the queue.
  void Remove(Request& request);
  bool Contains(const Request& request) const;
  int32_t size() const { return static_cast<int32_t>(queue_.size()); }
  // Number of requests that have waited for more than half of their wait.
  int64_t late() const {
    return std::ranges::count_if(queue_, [](const Request* request) { return request->placement.late; });
  }

  // Returns whether a request may wait. A tenant that has more waiting requests than the queue has
  // free slots may not add one.
  bool HasRoom(const RequestSpec& spec) const;
  // Returns RESOURCE_EXHAUSTED if the request may not wait.
  absl::Status Check(const RequestSpec& spec) const;
  // Returns all requests in the order in which they would ask, if each request that asks advances
  // its tenant's virtual time by its tokens.
  std::vector<Request*> InServiceOrder() const;
  // Returns the request that asks the worker next. Among tenants with requests that the worker has
  // refused, this is the first request of the tenant with the least TenantOrder::AskTimeOf.
  // Excludes requests for which another worker keeps room. Null if there is none.
  Request* FirstRefusedBy(const WorkerAddress& link) const;
  // Returns the request for which the worker keeps room next. Candidates wait for room at this
  // worker, since `since` or longer, and no worker keeps room for them. The result is the oldest
  // candidate of the tenant with the least TenantOrder::TimeOf. Null if there is none.
  Request* LongestRefusedBy(const WorkerAddress& link, absl::Time since) const;

  using Requests = std::set<Request*, Before>;
  const Requests& all() const { return queue_; }

 private:
  const int32_t most_;
  TenantOrder& tenants_;
  Requests queue_;  // requests of all tenants
};

}  // namespace baton
