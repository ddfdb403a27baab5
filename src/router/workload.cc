#include "router/workload.h"

#include <algorithm>

#include "base/check.h"

namespace baton {
namespace {

// Beyond it, priorities are alike, as for decode workers.
constexpr int32_t kMostPriority = 100;
// Agents of one workflow whose followers are learned. A workflow of more is foreseen less well.
constexpr size_t kMostSeen = 32;

// Of about the last eight.
template <typename Value>
void Learn(std::optional<Value>& mean, Value value) {
  mean = mean ? *mean + (value - *mean) / 8 : value;
}

}  // namespace

Workload::WorkflowKey Workload::WorkflowOf(const Arrival& arrival) const {
  if (!arrival.workflow.empty()) return {arrival.tenant, arrival.workflow, ""};
  for (const RequestId& upstream : arrival.upstreams) {
    const auto found = requests_.find(upstream);
    if (found != requests_.end() && std::get<0>(found->second.workflow) == arrival.tenant) {
      return found->second.workflow;
    }
  }
  return {arrival.tenant, "", arrival.id};
}

int64_t Workload::ExpectedTokens(const Arrival& arrival, const AgentKey& agent) const {
  if (arrival.expected_tokens > 0) return std::min(arrival.expected_tokens, arrival.max_tokens);
  const Agent* known = agents_.Find(agent);
  if (known == nullptr || !known->tokens) return arrival.max_tokens;
  return std::min(static_cast<int64_t>(*known->tokens + 0.5), arrival.max_tokens);
}

void Workload::Arrived(const Arrival& arrival, absl::Time now) {
  const WorkflowKey key = WorkflowOf(arrival);
  const AgentKey agent{arrival.tenant, arrival.model, arrival.agent};
  const auto [request, is_new] =
      requests_.try_emplace(arrival.id, Request{.workflow = key,
                                                .agent = agent,
                                                .came = now,
                                                .priority = std::clamp(arrival.priority, -kMostPriority, kMostPriority),
                                                .prompt = arrival.prompt_tokens * options_.per_prompt_token,
                                                .output = ExpectedTokens(arrival, agent) * options_.per_output_token});
  BATON_CHECK(is_new, arrival.id);
  const auto [entry, begins] = workflows_.try_emplace(key, Workflow());
  Workflow& workflow = entry->second;
  if (begins) {
    workflow.came = now;
  } else if (workflow.requests == 0) {
    idle_.erase({workflow.expires, key});
    workflow.expires = absl::InfiniteFuture();
  }
  ++workflow.requests;
  const absl::Duration work = request->second.prompt + request->second.output;
  workflow.left += work;
  workflow.total += work;
  ExpectLater(workflow, agent, work);
}

// A request of this agent and this much work has just come.
void Workload::ExpectLater(Workflow& workflow, const AgentKey& agent, absl::Duration work) {
  workflow.later = std::max(workflow.later - work, absl::ZeroDuration());
  const bool named = !std::get<2>(agent).empty();
  const bool again = std::ranges::any_of(workflow.seen, [&](const auto& seen) { return seen.first == agent; });
  if (!named || again || workflow.seen.size() == kMostSeen) return;
  workflow.seen.emplace_back(agent, workflow.total);
  const Agent* known = agents_.Find(agent);
  if (known != nullptr && known->later) workflow.later = *known->later;
}

void Workload::Prefilled(const RequestId& id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  workflows_.at(found->second.workflow).left -= std::exchange(found->second.prompt, absl::ZeroDuration());
}

void Workload::Made(const RequestId& id, int64_t tokens) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Request& request = found->second;
  request.made += tokens;
  const absl::Duration done = std::min(tokens * options_.per_output_token, request.output);
  request.output -= done;
  workflows_.at(request.workflow).left -= done;
}

void Workload::Ended(const RequestId& id, bool complete, absl::Time now) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  const Request request = std::move(found->second);
  requests_.erase(found);
  if (complete && request.made > 0 && !std::get<2>(request.agent).empty()) {
    const Agent* known = agents_.Find(request.agent);
    Agent agent = known == nullptr ? Agent{} : *known;
    Learn(agent.tokens, static_cast<double>(request.made));
    agents_.Put(request.agent, agent);
  }
  Workflow& workflow = workflows_.at(request.workflow);
  workflow.left -= request.prompt + request.output;
  if (--workflow.requests > 0) return;
  if (std::get<1>(request.workflow).empty()) {
    workflows_.erase(request.workflow);
    return;
  }
  workflow.expires = now + options_.keep;
  idle_.insert({workflow.expires, request.workflow});
  if (idle_.size() > options_.idle_workflows) Forget(WorkflowKey(idle_.begin()->second));
}

// REQUIRES: idle. It is over, so what followed whom is known.
void Workload::Forget(const WorkflowKey& key) {
  const auto found = workflows_.find(key);
  const Workflow& workflow = found->second;
  for (const auto& [agent, total] : workflow.seen) {
    const Agent* known = agents_.Find(agent);
    Agent learned = known == nullptr ? Agent{} : *known;
    Learn(learned.later, workflow.total - total);
    agents_.Put(agent, learned);
  }
  idle_.erase({workflow.expires, key});
  workflows_.erase(found);
}

void Workload::Tick(absl::Time now) {
  while (!idle_.empty() && idle_.begin()->first <= now) Forget(WorkflowKey(idle_.begin()->second));
}

absl::Duration Workload::Handicap(const RequestId& id, absl::Time now) const {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return absl::ZeroDuration();
  const Request& request = found->second;
  const Workflow& workflow = workflows_.at(request.workflow);
  const absl::Time came = std::max(workflow.came, request.came - options_.bound);
  const absl::Time turn = came + std::min(options_.bound, workflow.left + workflow.later);
  return turn - now - request.priority * 2 * options_.bound;
}

void Workload::CheckInvariants() const {
  absl::flat_hash_map<WorkflowKey, std::pair<int64_t, absl::Duration>> sums;
  for (const auto& [id, request] : requests_) {
    BATON_CHECK(workflows_.contains(request.workflow), id);
    BATON_CHECK(request.prompt >= absl::ZeroDuration() && request.output >= absl::ZeroDuration(), id);
    auto& [requests, left] = sums[request.workflow];
    ++requests;
    left += request.prompt + request.output;
  }
  for (const auto& [key, workflow] : workflows_) {
    const auto& [requests, left] = sums[key];
    BATON_CHECK(workflow.requests == requests && workflow.left == left, std::get<1>(key));
    BATON_CHECK((requests == 0) == idle_.contains({workflow.expires, key}), std::get<1>(key));
  }
  BATON_CHECK(idle_.size() <= options_.idle_workflows, "idle workflows are kept without bound");
}

}  // namespace baton
