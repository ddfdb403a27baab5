// The requests and values of workflows, live or ended recently, for traces and lists of workflows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "agent/values.h"
#include "request/refused_requests.h"
#include "request/timeline.h"
#include "router/request_table.h"

namespace baton {

// Not thread-safe.
class RequestLives {
 public:
  // The arguments must outlive this object.
  RequestLives(const RequestTable& requests, const Values& values) : requests_(requests), values_(values) {}

  // Keeps the life of a request that has ended with this outcome, if it has a workflow.
  void Keep(const Request& request, const RequestOutcome& outcome);
  // The same for a value. Its life has no tokens, and counts as a wait from its beginning to its
  // end.
  void Keep(const EndedValue& value);
  // Keeps a request that is refused now, if it has a workflow.
  void KeepRefused(const RefusedRequest& request, absl::Time now);
  // Returns the requests and values of a workflow that are live or ended recently.
  Timeline::Lives Of(const std::string& workflow, const std::string& cache_domain, absl::Time now);
  // Returns those that were refused recently.
  RefusedRequests::OfWorkflow RefusedOf(const std::string& workflow, const std::string& cache_domain, absl::Time now);
  // Returns the workflows of a cache domain, the latest first.
  std::vector<WorkflowView> Workflows(const std::string& cache_domain, size_t most, absl::Time now);

 private:
  const RequestTable& requests_;
  const Values& values_;
  Timeline ended_{TimelineLimits{}};
  RefusedRequests refused_{RefusalLimits{}};
};

}  // namespace baton
