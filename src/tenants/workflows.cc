#include "tenants/workflows.h"

#include <algorithm>

#include "base/check.h"
#include "base/strings.h"

namespace baton {
namespace {

WorkflowLimits Lower(const WorkflowLimits& a, const WorkflowLimits& b) {
  return {.deadline = std::min(a.deadline, b.deadline), .max_tokens = std::min(a.max_tokens, b.max_tokens)};
}

std::string DeadlineTextOf(const std::string& name, absl::Duration deadline) {
  return StrCat("the deadline of workflow '", name, "' (", absl::FormatDuration(deadline), " after its first request)");
}

absl::Status NoTokenLeftOf(const std::string& name, int64_t generated, int64_t limit) {
  return absl::FailedPreconditionError(StrCat("workflow '", name, "' has generated ", generated, " tokens, limit ",
                                              limit, " (max_tokens of its limits)"));
}

std::vector<Workflows::Part*> PartsOf(const absl::btree_map<int64_t, Workflows::Part*>& live) {
  std::vector<Workflows::Part*> parts;
  for (const auto& [number, part] : live) parts.push_back(part);
  return parts;
}

}  // namespace

const Workflows::Workflow* Workflows::Find(const WorkflowKey& key, absl::Time now) const {
  const auto found = workflows_.find(key);
  return found == workflows_.end() || found->second.expires <= now ? nullptr : &found->second;
}

absl::Status Workflows::Check(const WorkflowKey& key, const WorkflowLimits& stated, absl::Time received,
                              absl::Time now) const {
  const absl::Time* cancelled = cancelled_.Find(key);
  if (cancelled != nullptr && received <= *cancelled) {
    return absl::CancelledError(StrCat("workflow '", key.name, "' was cancelled while the request was read"));
  }
  const Workflow* workflow = Find(key, now);
  if (workflow == nullptr) return absl::OkStatus();
  const WorkflowLimits limits = Lower(workflow->limits, stated);
  if (workflow->generated >= limits.max_tokens) {
    return NoTokenLeftOf(key.name, workflow->generated, limits.max_tokens);
  }
  if (now < workflow->began + limits.deadline) return absl::OkStatus();
  return absl::DeadlineExceededError(
      StrCat(DeadlineTextOf(key.name, limits.deadline), " had passed when the request arrived"));
}

void Workflows::Arrived(Part& part, const WorkflowKey& key, const std::string& tenant, const WorkflowLimits& stated,
                        absl::Time now) {
  DropExpired(now);
  const auto [found, is_new] = workflows_.try_emplace(key);
  Workflow& workflow = found->second;
  if (is_new) workflow = {.key = key, .tenant = tenant, .number = ++numbers_, .began = now};
  SetTimer(workflow, false);
  Unkeep(workflow);
  workflow.limits = Lower(workflow.limits, stated);
  part.workflow = &workflow;
  part.number = ++numbers_;
  workflow.live[part.number] = &part;
  SetTimer(workflow, true);
}

bool Workflows::Generated(const Part& part, int64_t tokens) {
  if (part.workflow == nullptr) return false;
  part.workflow->generated += tokens;
  return part.workflow->generated >= part.workflow->limits.max_tokens;
}

void Workflows::Ended(Part& part, absl::Time now) {
  if (part.workflow == nullptr) return;
  Workflow& workflow = *std::exchange(part.workflow, nullptr);
  workflow.live.erase(part.number);
  if (!workflow.live.empty()) return;
  SetTimer(workflow, false);
  DropExpired(now);
  Keep(workflow, now);
}

std::vector<Workflows::Part*> Workflows::Cancel(const WorkflowKey& key, absl::Time now) {
  cancelled_.Put(key, now);
  const auto found = workflows_.find(key);
  return found == workflows_.end() ? std::vector<Part*>() : PartsOf(found->second.live);
}

std::vector<Workflows::Part*> Workflows::Siblings(const Part& part) { return PartsOf(part.workflow->live); }

std::vector<Workflows::Part*> Workflows::TakeOverdue(absl::Time now) {
  std::vector<Part*> overdue;
  while (NextDeadline() <= now) {
    const std::vector<Part*> parts = PartsOf(timers_.begin()->second->live);
    overdue.insert(overdue.end(), parts.begin(), parts.end());
    timers_.erase(timers_.begin());
  }
  return overdue;
}

absl::Time Workflows::NextDeadline() const {
  return timers_.empty() ? absl::InfiniteFuture() : timers_.begin()->first.first;
}

std::string Workflows::DeadlineText(const Part& part) {
  return DeadlineTextOf(part.workflow->key.name, part.workflow->limits.deadline);
}

absl::Status Workflows::NoTokenLeft(const Part& part) {
  const Workflow& workflow = *part.workflow;
  return NoTokenLeftOf(workflow.key.name, workflow.generated, workflow.limits.max_tokens);
}

void Workflows::SetTimer(Workflow& workflow, bool set) {
  const TimeKey key{workflow.ends(), workflow.number};
  if (!set) {
    timers_.erase(key);
  } else if (workflow.ends() != absl::InfiniteFuture()) {
    timers_[key] = &workflow;
  }
}

// --- kept workflows ------------------------------------------------------------------------------

void Workflows::Keep(Workflow& workflow, absl::Time now) {
  workflow.expires = now + limits_.keep;
  const TimeKey key{workflow.expires, workflow.number};
  kept_[key] = &workflow;
  Change(workflow.tenant, key, &workflow);
  if (std::ssize(kept_) > limits_.kept) Drop(*kept_of_tenant_.at(tenants_.rbegin()->second).begin()->second);
}

void Workflows::Unkeep(Workflow& workflow) {
  const TimeKey key{std::exchange(workflow.expires, absl::InfiniteFuture()), workflow.number};
  if (kept_.erase(key) > 0) Change(workflow.tenant, key, nullptr);
}

void Workflows::Drop(Workflow& workflow) {
  Unkeep(workflow);
  workflows_.erase(WorkflowKey(workflow.key));  // a copy, because the workflow has the key
}

void Workflows::DropExpired(absl::Time now) {
  while (!kept_.empty() && kept_.begin()->first.first <= now) Drop(*kept_.begin()->second);
}

// Adds a kept workflow of the tenant, or removes it if `added` is null.
void Workflows::Change(const std::string& tenant, const TimeKey& key, Workflow* added) {
  Queue& queue = kept_of_tenant_[tenant];
  tenants_.erase({std::ssize(queue), tenant});
  if (added == nullptr) {
    queue.erase(key);
  } else {
    queue[key] = added;
  }
  if (queue.empty()) {
    kept_of_tenant_.erase(std::string(tenant));
  } else {
    tenants_.insert({std::ssize(queue), tenant});
  }
}

void Workflows::CheckInvariants() const {
  int64_t kept = 0, timers = 0;
  for (const auto& [key, workflow] : workflows_) {
    const bool is_kept = workflow.expires != absl::InfiniteFuture();
    kept += is_kept;
    timers += timers_.contains({workflow.ends(), workflow.number});
    BATON_CHECK(is_kept == workflow.live.empty() && key == workflow.key, key.name);
    for (const auto& [number, part] : workflow.live) BATON_CHECK(part->workflow == &workflow, key.name);
  }
  int64_t of_tenants = 0;
  for (const auto& [count, tenant] : tenants_) {
    of_tenants += count;
    BATON_CHECK(count == std::ssize(kept_of_tenant_.at(tenant)), tenant);
  }
  BATON_CHECK(kept == std::ssize(kept_) && kept == of_tenants && kept <= limits_.kept, "kept workflows are miscounted");
  BATON_CHECK(timers == std::ssize(timers_), "a workflow without live requests has a timer");
}

}  // namespace baton
