// Requests that wait for a worker, or for room at one, and which of them is next.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/ids.h"
#include "router/request.h"
#include "router/tenant_shares.h"

namespace baton {

// Tenants take turns, and a tenant's requests are in the order of priority, then of turn, then of
// submission.
class WaitingQueue {
 public:
  // `most`: requests that may wait. `shares` outlives this.
  WaitingQueue(int32_t most, const TenantShares& shares) : most_(most), shares_(shares) {}

  void Add(Request& request);     // harmless if it is there
  void Remove(Request& request);  // harmless if it is not there
  bool Contains(const Request& request) const;
  int32_t size() const { return static_cast<int32_t>(line_.size()); }

  // Whether there is room. A tenant may have as many waiting requests as are then left free.
  bool HasRoom(const RequestSpec& spec) const;
  // Each tenant's first request, then each one's second, and so on. A round begins with the tenant
  // whose last turn is the oldest.
  std::vector<Request*> InTurn() const;
  // Of the requests that the worker has refused, the first of the tenant whose last turn is the
  // oldest. Null: none waits for it.
  Request* FirstRefusedBy(const WorkerAddress& link) const;

 private:
  struct Before {
    bool operator()(const Request* a, const Request* b) const;
  };

  const int32_t most_;
  const TenantShares& shares_;
  std::set<Request*, Before> line_;  // of all tenants
};

}  // namespace baton
