#include "router/workload.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "router/request.h"

namespace baton {
namespace {

// Priorities beyond this value, positive or negative, count as this value, as on decode workers.
constexpr int32_t kMaxPriorityLevels = 100;
// Upper bound on the agents of one workflow whose later work is learned.
constexpr size_t kMostSeen = 32;

}  // namespace

Workload::AgentKey Workload::AgentOf(const Request& request) {
  // The key has the cache domain, so that no client's estimates depend on another client's
  // requests.
  return {request.asked.spec.cache_domain, request.asked.served->name, request.asked.agent};
}

Workload::WorkflowKey Workload::WorkflowOf(const Request& request, const Request* upstream) {
  const std::string& cache_domain = request.asked.spec.cache_domain;
  if (!request.asked.workflow.empty()) return {cache_domain, request.asked.workflow, ""};
  const bool follows = upstream != nullptr && upstream->work.workflow != nullptr;
  return follows ? upstream->work.workflow->first : WorkflowKey{cache_domain, "", request.id};
}

void Workload::Arrived(Request& request, const Lengths& lengths, const Request* upstream, absl::Time now) {
  BATON_CHECK(request.work.workflow == nullptr, request.id);
  const auto [entry, begins] = workflows_.try_emplace(WorkflowOf(request, upstream));
  auto& [key, workflow] = *entry;
  if (begins) {
    workflow.arrived = now;
  } else if (workflow.requests == 0) {
    idle_.erase({workflow.expires, key});
    workflow.expires = absl::InfiniteFuture();
  }
  request.work = {.workflow = &*entry,
                  .arrived = now,
                  .prompt = lengths.prompt * options_.per_prompt_token,
                  .output = lengths.output * options_.per_output_token};
  ++requests_;
  ++workflow.requests;
  const absl::Duration work = request.work.prompt + request.work.output;
  workflow.left += work;
  workflow.total += work;
  ExpectLater(workflow, AgentOf(request), work);
}

// Updates the expected later work after a request of this agent, with this much work, has arrived.
void Workload::ExpectLater(Workflow& workflow, const AgentKey& agent, absl::Duration work) {
  workflow.later = std::max(workflow.later - work, absl::ZeroDuration());
  const bool named = !std::get<2>(agent).empty();
  const bool again = std::ranges::any_of(workflow.seen, [&](const auto& seen) { return seen.first == agent; });
  if (!named || again || workflow.seen.size() == kMostSeen) return;
  workflow.seen.emplace_back(agent, workflow.total);
  const absl::Duration* later = later_.Find(agent);
  if (later != nullptr) workflow.later = *later;
}

void Workload::Prefilled(Request& request) {
  Part& work = request.work;
  if (work.workflow == nullptr) return;
  work.workflow->second.left -= std::exchange(work.prompt, absl::ZeroDuration());
}

void Workload::Made(Request& request, int64_t tokens) {
  Part& work = request.work;
  if (work.workflow == nullptr) return;
  const absl::Duration done = std::min(tokens * options_.per_output_token, work.output);
  work.output -= done;
  work.workflow->second.left -= done;
}

void Workload::Ended(Request& request, absl::Time now) {
  if (request.work.workflow == nullptr) return;
  const Part work = std::exchange(request.work, {});
  --requests_;
  auto& [key, workflow] = *work.workflow;
  workflow.left -= work.prompt + work.output;
  if (--workflow.requests > 0) return;
  if (std::get<1>(key).empty()) {
    workflows_.erase(WorkflowKey(key));
    return;
  }
  workflow.expires = now + options_.keep;
  idle_.insert({workflow.expires, key});
  if (idle_.size() > options_.idle_workflows) Forget(WorkflowKey(idle_.begin()->second));
}

// Learns the work that followed each agent, and drops the workflow. REQUIRES: the workflow is idle.
void Workload::Forget(const WorkflowKey& key) {
  const auto found = workflows_.find(key);
  const Workflow& workflow = found->second;
  for (const auto& [agent, total] : workflow.seen) {
    const absl::Duration work = workflow.total - total;
    const absl::Duration* mean = later_.Find(agent);  // over about the last eight workflows
    later_.Put(agent, mean == nullptr ? work : *mean + (work - *mean) / 8);
  }
  idle_.erase({workflow.expires, key});
  workflows_.erase(found);
}

void Workload::Tick(absl::Time now) {
  while (!idle_.empty() && idle_.begin()->first <= now) Forget(WorkflowKey(idle_.begin()->second));
}

absl::Duration Workload::ArrivalOffset(const Request& request, absl::Time now) const {
  const Part& work = request.work;
  if (work.workflow == nullptr) return absl::ZeroDuration();
  const Workflow& workflow = work.workflow->second;
  const absl::Time arrived = std::max(workflow.arrived, work.arrived - options_.bound);
  const absl::Time order = arrived + std::min(options_.bound, workflow.left + workflow.later);
  const int32_t priority = std::clamp(request.asked.spec.priority, -kMaxPriorityLevels, kMaxPriorityLevels);
  return order - now - priority * 2 * options_.bound;
}

void Workload::CheckInvariants() const {
  int64_t requests = 0;
  for (const auto& [key, workflow] : workflows_) {
    requests += workflow.requests;
    BATON_CHECK(workflow.requests > 0 || workflow.left == absl::ZeroDuration(), std::get<1>(key));
    BATON_CHECK((workflow.requests == 0) == idle_.contains({workflow.expires, key}), std::get<1>(key));
  }
  BATON_CHECK(requests == requests_, "the counts of workflows are wrong");
  BATON_CHECK(idle_.size() <= options_.idle_workflows, "too many idle workflows");
}

}  // namespace baton
