// What the router tells of workflows.
#include <algorithm>
#include <tuple>

#include "base/strings.h"
#include "shell/router.h"

namespace baton {

absl::StatusOr<Router::Trace> Router::TraceOf(const std::string& workflow, const std::string& tenant) {
  if (workflow.empty()) return absl::InvalidArgumentError("workflow: is empty, expected a name");
  Trace trace;
  {
    const std::lock_guard lock(mutex_);
    trace.now = clock_.Now();
    trace.lives = dispatcher_.LivesOf(workflow, tenant, trace.now);
  }
  if (trace.lives.empty()) {
    return absl::NotFoundError(absl::StrCat("workflow: no request of '", workflow, "' is live or ended in the last ",
                                            absl::FormatDuration(TimelineLimits{}.age), " at this router"));
  }
  std::ranges::sort(trace.lives, {}, [](const auto& life) { return std::tie(life->arrived, life->id); });
  if (trace.lives.size() > kMostTraced) {
    trace.omitted = static_cast<int32_t>(trace.lives.size() - kMostTraced);
    trace.lives.erase(trace.lives.begin(), trace.lives.begin() + trace.omitted);
  }
  return trace;
}

Router::Workflows Router::WorkflowsOf(const std::string& tenant) {
  const std::lock_guard lock(mutex_);
  const absl::Time now = clock_.Now();
  return {dispatcher_.WorkflowsOf(tenant, kMostWorkflows, now), now};
}

}  // namespace baton
