#include "router/request_lives.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "agent/scoped_id.h"

namespace baton {
namespace {

RequestLife LifeOf(const ValueSpec& value, absl::Time began, int32_t attempt) {
  RequestLife life;
  life.outcome.id = NameOf(value.id);
  life.outcome.tenant = value.tenant;
  life.outcome.attempt = attempt;
  life.workflow = value.workflow;
  life.cache_domain = value.cache_domain;
  life.agent = value.agent;
  life.stages.arrived = began;
  return life;
}

}  // namespace

void RequestLives::Keep(const Request& request, const RequestOutcome& outcome) {
  if (!request.asked.workflow.empty()) ended_.Keep(request.Life(outcome));
}

void RequestLives::Keep(const EndedValue& value) {
  if (value.spec.workflow.empty()) return;
  RequestLife life = LifeOf(value.spec, value.began, value.attempt);
  life.stages.ended = value.ended;
  life.outcome.status = value.status;
  ended_.Keep(std::move(life));
}

void RequestLives::KeepRefused(const RefusedRequest& request, absl::Time now) {
  if (!request.workflow.empty()) refused_.Keep(request, now);
}

RefusedRequests::OfWorkflow RequestLives::RefusedOf(const std::string& workflow, const std::string& cache_domain,
                                                    absl::Time now) {
  return refused_.Find(workflow, cache_domain, now);
}

Timeline::Lives RequestLives::Of(const std::string& workflow, const std::string& cache_domain, absl::Time now) {
  Timeline::Lives lives = ended_.Find(workflow, cache_domain, now);
  for (const auto& [id, request] : requests_.live()) {
    if (request->asked.workflow != workflow || request->asked.spec.cache_domain != cache_domain) continue;
    lives.push_back(std::make_shared<const RequestLife>(request->Life(request->Outcome(absl::OkStatus(), now))));
  }
  values_.ForEach([&](const ValueSpec& value, absl::Time began, int32_t attempt) {
    if (value.workflow != workflow || value.cache_domain != cache_domain) return;
    lives.push_back(std::make_shared<const RequestLife>(LifeOf(value, began, attempt)));
  });
  return lives;
}

std::vector<WorkflowView> RequestLives::Workflows(const std::string& cache_domain, size_t most, absl::Time now) {
  absl::flat_hash_map<std::string, WorkflowView> views;
  const auto count = [&views](const std::string& name, absl::Time arrived, bool live) {
    WorkflowView& view = views[name];
    view.name = name;
    ++view.requests;
    view.live += live;
    view.latest = std::max(view.latest, arrived);
  };
  for (const auto& life : ended_.OfCacheDomain(cache_domain, now)) {
    count(life->workflow, life->stages.arrived, /*live=*/false);
  }
  for (const auto& [id, request] : requests_.live()) {
    if (request->asked.workflow.empty() || request->asked.spec.cache_domain != cache_domain) continue;
    count(request->asked.workflow, request->stages.arrived, /*live=*/true);
  }
  values_.ForEach([&](const ValueSpec& value, absl::Time began, int32_t) {
    if (value.workflow.empty() || value.cache_domain != cache_domain) return;
    count(value.workflow, began, /*live=*/true);
  });
  for (const auto& life : refused_.OfCacheDomain(cache_domain, now)) {
    WorkflowView& view = views[life->workflow];
    view.name = life->workflow;
    ++view.refused;
    view.latest = std::max(view.latest, life->stages.arrived);
  }
  std::vector<WorkflowView> sorted;
  for (auto& [name, view] : views) sorted.push_back(std::move(view));
  std::ranges::sort(sorted, std::greater<>(),
                    [](const WorkflowView& view) { return std::tie(view.latest, view.name); });
  if (sorted.size() > most) sorted.resize(most);
  return sorted;
}

}  // namespace baton
