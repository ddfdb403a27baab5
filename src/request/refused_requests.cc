#include "request/refused_requests.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "base/check.h"
#include "base/root_cause.h"
#include "base/status.h"

namespace baton {
namespace {

// Returns the status with at most kMaxCauseBytes of its message.
absl::Status Cut(const absl::Status& status) {
  if (status.message().size() <= kMaxCauseBytes) return status;
  const absl::Status cut(status.code(), status.message().substr(0, kMaxCauseBytes));
  const auto cause = RootCauseOf(status);
  return cause ? WithRootCause(cut, *cause) : cut;
}

std::shared_ptr<const RequestLife> LifeOf(const RefusedRequest& request, absl::Time now) {
  RequestLife life;
  life.refused = true;
  life.workflow = request.workflow;
  life.cache_domain = request.cache_domain;
  life.agent = request.agent;
  life.outcome.id = request.id;
  life.outcome.tenant = request.tenant;
  life.outcome.status = Cut(request.status);
  life.outcome.retry_after = request.retry_after;
  life.stages.arrived = life.stages.ended = now;
  return std::make_shared<const RequestLife>(std::move(life));
}

}  // namespace

void RefusedRequests::Keep(const RefusedRequest& request, absl::Time now) {
  BATON_CHECK(!request.workflow.empty() && !request.status.ok(), request.id);
  const std::pair key(request.cache_domain, request.workflow);
  const auto found = workflows_.find(key);
  if (found != workflows_.end() && found->second.refused.size() >= limits_.of_workflow) {
    DropFirst(found->second);
  } else if (all_ >= limits_.all) {
    DropOld(now);
    if (all_ >= limits_.all) DropOldestOfLargestTenant();
  }
  Kept& kept = workflows_[key];
  kept.tenant = request.tenant;
  kept.refused.push_back({++numbers_, LifeOf(request, now)});
  ++of_tenants_[kept.tenant];
  ++all_;
}

RefusedRequests::OfWorkflow RefusedRequests::Find(const std::string& workflow, const std::string& cache_domain,
                                                  absl::Time now) {
  DropOld(now);
  const auto found = workflows_.find(std::pair(cache_domain, workflow));
  if (found == workflows_.end()) return {};
  OfWorkflow of_workflow{.lives = {}, .omitted = found->second.omitted};
  std::ranges::transform(found->second.refused, std::back_inserter(of_workflow.lives), &Refused::life);
  return of_workflow;
}

Timeline::Lives RefusedRequests::OfCacheDomain(const std::string& cache_domain, absl::Time now) {
  DropOld(now);
  Timeline::Lives found;
  for (const auto& [key, kept] : workflows_) {
    if (key.first == cache_domain) std::ranges::transform(kept.refused, std::back_inserter(found), &Refused::life);
  }
  return found;
}

void RefusedRequests::DropFirst(Kept& kept) {
  kept.refused.pop_front();
  ++kept.omitted;
  const auto tenant = of_tenants_.find(kept.tenant);
  if (--tenant->second == 0) of_tenants_.erase(tenant);
  --all_;
}

void RefusedRequests::DropOld(absl::Time now) {
  absl::erase_if(workflows_, [&](auto& entry) {
    Kept& kept = entry.second;
    while (!kept.refused.empty() && kept.refused.front().life->stages.ended + limits_.age <= now) DropFirst(kept);
    return kept.refused.empty();
  });
}

void RefusedRequests::DropOldestOfLargestTenant() {
  const auto largest = std::ranges::max_element(of_tenants_, {}, [](const auto& entry) { return entry.second; });
  Workflows::iterator oldest = workflows_.end();
  for (auto it = workflows_.begin(); it != workflows_.end(); ++it) {
    if (it->second.tenant != largest->first) continue;
    const auto first = [](const Workflows::iterator& at) { return at->second.refused.front().number; };
    if (oldest == workflows_.end() || first(it) < first(oldest)) oldest = it;
  }
  DropFirst(oldest->second);
  if (oldest->second.refused.empty()) workflows_.erase(oldest);
}

}  // namespace baton
