#include "router/waiting_queue.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "tenants/request_slots.h"

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

void WaitingQueue::Add(Request& request) {
  if (queue_.insert(&request).second) tenants_.BeginWait(request);
}

void WaitingQueue::Remove(Request& request) {
  if (queue_.erase(&request) > 0) tenants_.EndWait(request);
}

bool WaitingQueue::Contains(const Request& request) const { return queue_.contains(const_cast<Request*>(&request)); }

bool WaitingQueue::HasRoom(const RequestSpec& spec) const {
  const int32_t left = most_ - size();
  if (left <= 0 || !CountsForTenant(spec)) return left > 0;
  return left >= std::ranges::count_if(queue_, [&](const Request* other) { return TenantOf(*other) == spec.tenant; });
}

absl::Status WaitingQueue::Check(const RequestSpec& spec) const {
  if (HasRoom(spec)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("overloaded: ", size(), " requests wait, limit ", most_,
                   spec.tenant.empty() ? "" : "; a tenant with more waiting requests than free slots may not add one"));
}

std::vector<Request*> WaitingQueue::InServiceOrder() const {
  absl::btree_map<std::string, int64_t> times;  // of each tenant's next request
  std::vector<std::pair<int64_t, Request*>> order;
  for (Request* request : queue_) {
    int64_t& time = times.try_emplace(TenantOf(*request), tenants_.AskTimeOf(*request)).first->second;
    order.emplace_back(time, request);
    time += TenantOrder::TokensOf(*request);
  }
  // Entries of equal times stay in queue order.
  std::ranges::stable_sort(order, {}, [](const auto& entry) { return entry.first; });
  std::vector<Request*> requests;
  for (const auto& [time, request] : order) requests.push_back(request);
  return requests;
}

Request* WaitingQueue::FirstRefusedBy(const WorkerAddress& link) const {
  Request* first = nullptr;
  for (Request* request : queue_) {
    const Placement& placement = request->placement;
    if (!placement.refusals.Has(link) || (!placement.room_at.empty() && placement.room_at != link)) continue;
    const std::string& tenant = TenantOf(*request);
    if (first != nullptr && tenant == TenantOf(*first)) continue;
    if (first == nullptr || tenants_.AskTimeOf(*request) < tenants_.AskTimeOf(*first)) first = request;
    // Without API keys, all requests belong to one tenant.
    if (tenant.empty()) break;
  }
  return first;
}

Request* WaitingQueue::LongestRefusedBy(const WorkerAddress& link, absl::Time since) const {
  const auto key = [this](const Request& request) {
    return std::tuple(tenants_.TimeOf(request), *request.placement.refused_at, request.placement.sequence);
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
