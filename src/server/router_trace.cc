// What the router tells of workflows.
#include <algorithm>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "server/router.h"

namespace baton {

std::vector<RequestId> Router::UpstreamsOf(const ClientRequest& request) {
  std::vector<RequestId> upstreams;
  absl::flat_hash_set<RequestId> known;
  for (const PromptSegment& segment : request.segments) {
    const auto* reference = std::get_if<Reference>(&segment);
    if (reference != nullptr && known.insert(reference->upstream).second) upstreams.push_back(reference->upstream);
  }
  return upstreams;
}

RequestLife Router::LifeOf(const Record& record) {
  const ClientRequest& request = record.request;
  RequestLife life;
  life.id = request.id;
  life.workflow = request.workflow;
  life.tenant = request.cache_salt;
  life.agent = request.agent;
  life.prefill_only = request.prefill_only;
  life.upstreams = record.upstreams;
  life.arrived = record.arrived;
  if (request.segments.empty()) life.complete = record.complete;
  life.placed = record.placed;
  life.prefilled = record.prefilled;
  life.prompt_tokens = static_cast<int32_t>(request.tokens.size());
  if (record.done) {
    life.steps = record.done->steps;
    life.handoff = record.done->handoff;
    life.cached_tokens = std::max(life.prompt_tokens - 1 - record.done->computed_tokens, 0);
  }
  if (record.completion_tokens > 0) life.first_token = record.arrived + record.first_token;
  life.completion_tokens = record.completion_tokens;
  return life;
}

absl::StatusOr<Router::Trace> Router::TraceOf(const std::string& workflow, const std::string& tenant) {
  if (workflow.empty()) return absl::InvalidArgumentError("workflow: is empty, expected a name");
  Trace trace;
  {
    const std::lock_guard lock(mutex_);
    trace.now = clock_.Now();
    trace.lives = timeline_.Find(workflow, tenant, trace.now);
    for (const auto& [id, record] : records_) {
      if (record.request.workflow != workflow || record.request.cache_salt != tenant) continue;
      trace.lives.push_back(std::make_shared<const RequestLife>(LifeOf(record)));
    }
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

}  // namespace baton
