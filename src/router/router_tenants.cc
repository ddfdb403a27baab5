// What a RouterCore lets a tenant have of it beside others, and whose turn it is among those that wait.
#include <algorithm>
#include <tuple>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "request/priority.h"
#include "router/router_core.h"

namespace baton {
namespace {

// Nobody waits for what is in the background, and it has limits of its own.
bool Counts(const RouteRequest& request) { return !request.tenant.empty() && !IsBackground(request.priority); }

}  // namespace

// A tenant may have as much as is then left free, so whoever comes finds as much room as anyone has.
absl::Status RouterCore::CheckShare(const RouteRequest& request) const {
  if (!Counts(request)) return absl::OkStatus();
  const auto use = tenants_.find(request.tenant);
  const int32_t theirs = use == tenants_.end() ? 0 : use->second.live;
  if (theirs <= limits_.live_requests - live_requests()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("overloaded: tenant '", request.tenant, "' has ", theirs,
                                                   " live requests, as many as it leaves free of this router's ",
                                                   limits_.live_requests));
}

// So it is for those that wait.
bool RouterCore::MayWait(const RouteRequest& request) const {
  const int32_t left = limits_.waiting_requests - waiting_requests();
  if (left <= 0 || !Counts(request)) return left > 0;
  return left >= std::ranges::count_if(waiting_, [&](const WaitingKey& key) {
           return live_.at(std::get<RequestId>(key)).request.tenant == request.tenant;
         });
}

void RouterCore::CountLive(const RouteRequest& request, int32_t change) {
  if (!Counts(request)) return;
  TenantUse& use = tenants_[request.tenant];
  use.live += change;
  if (use.live == 0) tenants_.erase(request.tenant);
}

int64_t RouterCore::LastTurn(const std::string& tenant) const {
  const auto use = tenants_.find(tenant);
  return use == tenants_.end() ? 0 : use->second.turn;
}

void RouterCore::NoteTurn(const std::string& tenant) {
  const auto use = tenants_.find(tenant);
  if (use != tenants_.end()) use->second.turn = ++turns_;
}

// Each tenant's first one, then each one's second, and so on; first of those whose last turn is longest ago.
std::vector<RequestId> RouterCore::WaitingInTurn() const {
  absl::btree_map<std::string, int64_t> seen;
  std::vector<std::tuple<int64_t, int64_t, WaitingKey>> order;  // round, last turn, place in the tenant's line
  for (const WaitingKey& key : waiting_) {
    const std::string& tenant = live_.at(std::get<RequestId>(key)).request.tenant;
    order.emplace_back(seen[tenant]++, LastTurn(tenant), key);
  }
  std::ranges::sort(order);
  std::vector<RequestId> ids;
  for (const auto& [round, turn, key] : order) ids.push_back(std::get<RequestId>(key));
  return ids;
}

// Null: nobody. Of the tenant whose last turn is longest ago the first that waits for this worker.
RouterCore::Live* RouterCore::FirstWaitingFor(const WorkerAddress& link) {
  Live* first = nullptr;
  for (const WaitingKey& key : waiting_) {
    Live& live = live_.at(std::get<RequestId>(key));
    if (std::ranges::find(live.refusals, link, &Refusal::link) == live.refusals.end()) continue;
    const std::string& tenant = live.request.tenant;
    if (first != nullptr && tenant == first->request.tenant) continue;
    if (first == nullptr || LastTurn(tenant) < LastTurn(first->request.tenant)) first = &live;
    if (tenant.empty()) break;  // without keys all are one tenant's
  }
  return first;
}

}  // namespace baton
