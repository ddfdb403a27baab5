#include "router/session_needs.h"

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "router/request.h"

namespace baton {

bool IsNeeded(const Request& request) {
  absl::flat_hash_set<const Request*> seen;
  std::vector<const Request*> open{&request};
  while (!open.empty()) {
    const std::vector<AgentNode*> downstreams = AgentGraph::DownstreamsOf(open.back()->node);
    open.pop_back();
    for (const AgentNode* node : downstreams) {
      const Request* downstream = node->request;
      const SessionGate::State state = downstream->session.state;
      if (state == SessionGate::State::kAdmitted) return true;
      if (state == SessionGate::State::kUnknown && seen.insert(downstream).second) open.push_back(downstream);
    }
  }
  return false;
}

void AdmitUpstreams(SessionGate& gate, const Request& request, absl::Time now) {
  absl::flat_hash_set<const Request*> seen;
  std::vector<const Request*> open{&request};
  while (!open.empty()) {
    const std::vector<AgentNode*> upstreams = AgentGraph::UpstreamsOf(open.back()->node);
    open.pop_back();
    for (const AgentNode* node : upstreams) {
      Request* upstream = node->request;
      if (upstream == nullptr) continue;  // a value has no session
      if (upstream->session.state != SessionGate::State::kUnknown) {
        gate.Needed(*upstream, now);
      } else if (seen.insert(upstream).second) {
        open.push_back(upstream);
      }
    }
  }
}

SessionGate::Prefill PrefillOf(const Request& request, std::span<const BlockKey> keys) {
  const PrefillDone& done = *request.done;
  return {.worker = request.prefilled_by,
          .keys = keys,
          .found = std::ssize(request.asked.spec.tokens) - 1 - done.computed_tokens,
          .computed = done.computed_tokens,
          .queued = done.queued,
          .compute = done.compute,
          .copied = done.copied,
          .awaited = !request.is_internal()};
}

SessionGate::Capacity KvCapacity(const WorkerRegistry& registry) {
  SessionGate::Capacity capacity;
  for (const auto& [link, worker] : registry.workers()) {
    if (worker.info.role != WorkerRole::kPrefill) continue;
    capacity.blocks += worker.info.blocks_total;
    capacity.host_blocks += worker.info.host_blocks;
  }
  return capacity;
}

}  // namespace baton
