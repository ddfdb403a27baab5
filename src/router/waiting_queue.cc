#include "router/waiting_queue.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "absl/container/btree_map.h"

namespace baton {
namespace {

const std::string& TenantOf(const Request& request) { return request.asked.spec.tenant; }

}  // namespace

bool WaitingQueue::Before::operator()(const Request* a, const Request* b) const {
  const auto key = [](const Request& request) {
    return std::tuple(-request.asked.spec.priority, request.placement.route.queue_order, request.placement.sequence);
  };
  return key(*a) < key(*b);
}

void WaitingQueue::Add(Request& request) { queue_.insert(&request); }

void WaitingQueue::Remove(Request& request) { queue_.erase(&request); }

bool WaitingQueue::Contains(const Request& request) const { return queue_.contains(const_cast<Request*>(&request)); }

bool WaitingQueue::HasRoom(const RequestSpec& spec) const {
  const int32_t left = most_ - size();
  if (left <= 0 || !TenantShares::Counts(spec)) return left > 0;
  return left >= std::ranges::count_if(queue_, [&](const Request* other) { return TenantOf(*other) == spec.tenant; });
}

std::vector<Request*> WaitingQueue::InServiceOrder() const {
  absl::btree_map<std::string, int64_t> seen;
  std::vector<std::tuple<int64_t, int64_t, Request*>> order;  // round, last served, request
  for (Request* request : queue_) {
    order.emplace_back(seen[TenantOf(*request)]++, shares_.LastServed(TenantOf(*request)), request);
  }
  std::ranges::stable_sort(order, {}, [](const auto& entry) {
    return std::tuple(std::get<0>(entry), std::get<1>(entry));  // otherwise in queue order
  });
  std::vector<Request*> requests;
  for (const auto& [round, last_served, request] : order) requests.push_back(request);
  return requests;
}

Request* WaitingQueue::FirstRefusedBy(const WorkerAddress& link) const {
  Request* first = nullptr;
  for (Request* request : queue_) {
    const Placement& placement = request->placement;
    if (!placement.refusals.Has(link) || (!placement.room_at.empty() && placement.room_at != link)) continue;
    const std::string& tenant = TenantOf(*request);
    if (first != nullptr && tenant == TenantOf(*first)) continue;
    if (first == nullptr || shares_.LastServed(tenant) < shares_.LastServed(TenantOf(*first))) first = request;
    // Without API keys, all requests belong to one tenant.
    if (tenant.empty()) break;
  }
  return first;
}

Request* WaitingQueue::LongestRefusedBy(const WorkerAddress& link, absl::Time since) const {
  const auto key = [this](const Request& request) {
    return std::tuple(shares_.LastServed(TenantOf(request)), *request.placement.refused_at, request.placement.sequence);
  };
  Request* longest = nullptr;
  for (Request* request : queue_) {
    const Placement& placement = request->placement;
    if (!placement.refused_at || *placement.refused_at > since || !placement.room_at.empty()) continue;
    if (!placement.refusals.AwaitsRoom(link)) continue;
    if (longest == nullptr || key(*request) < key(*longest)) longest = request;
  }
  return longest;
}

}  // namespace baton
