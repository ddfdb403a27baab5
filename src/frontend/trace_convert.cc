#include "frontend/trace_convert.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/root_cause.h"
#include "base/strings.h"

namespace baton {
namespace {

constexpr size_t kMaxErrorBytes = 256;
constexpr size_t kMostAgents = 512;

v1::Span::Phase ToProto(Phase phase) {
  switch (phase) {
    case Phase::kWaiting:
      return v1::Span::PHASE_WAITING;
    case Phase::kQueued:
      return v1::Span::PHASE_QUEUED;
    case Phase::kPrefill:
      return v1::Span::PHASE_PREFILL;
    case Phase::kHandoff:
      return v1::Span::PHASE_HANDOFF;
    case Phase::kDecodeQueue:
      return v1::Span::PHASE_DECODE_QUEUE;
    case Phase::kFirstStep:
      return v1::Span::PHASE_FIRST_STEP;
    case Phase::kDecode:
      return v1::Span::PHASE_DECODE;
  }
  return v1::Span::PHASE_UNSPECIFIED;
}

// Cuts a long text between two UTF-8 characters.
std::string Cut(std::string text) {
  if (text.size() <= kMaxErrorBytes) return text;
  size_t end = kMaxErrorBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

std::string ErrorOf(const absl::Status& status) {
  if (status.ok()) return "";
  std::string text = StrCat(absl::StatusCodeToString(status.code()), ": ", Message(status));
  return Cut(std::move(text));
}

void SetRoot(const absl::Status& status, v1::TracedRequest& out) {
  const auto cause = RootCauseOf(status);
  if (!cause) return;
  out.mutable_root()->set_request_id(cause->request);
  out.mutable_root()->set_agent(cause->agent);
  out.mutable_root()->set_code(static_cast<int32_t>(cause->code));
  out.mutable_root()->set_message(Cut(cause->message));
}

void AddSums(const std::vector<AgentSums>& agents, v1::TraceResponse& response) {
  const size_t sent = std::min(agents.size(), kMostAgents);
  for (const AgentSums& sums : std::span(agents).first(sent)) {
    v1::AgentSums& out = *response.add_agents();
    out.set_agent(sums.agent);
    out.set_requests(sums.requests);
    out.set_failed(sums.failed);
    out.set_refused(sums.refused);
    out.set_prompt_tokens(sums.prompt_tokens);
    out.set_cached_tokens(sums.cached_tokens);
    out.set_completion_tokens(sums.completion_tokens);
    out.set_overlap_tokens(sums.overlap_tokens);
    out.set_total_ms(absl::ToDoubleMilliseconds(sums.total));
    out.set_upstream_ms(absl::ToDoubleMilliseconds(sums.upstream));
    out.set_queued_ms(absl::ToDoubleMilliseconds(sums.queued));
  }
  response.set_agents_omitted(static_cast<int32_t>(agents.size() - sent));
}

}  // namespace

v1::TraceResponse ToProto(const Router::Trace& trace) {
  v1::TraceResponse response;
  response.set_omitted(trace.omitted);
  response.set_refused_omitted(trace.refused_omitted);
  AddSums(trace.agents, response);
  if (trace.lives.empty()) return response;
  const absl::Time origin = trace.lives.front()->stages.arrived;
  response.set_origin_us(absl::ToUnixMicros(origin));
  const auto micros = [origin](absl::Time time) { return absl::ToInt64Microseconds(time - origin); };
  // If a client has used an id again, the id and the attempt map to the latest request that was
  // accepted. The attempt 0 stands for the latest of all.
  absl::flat_hash_map<std::pair<RequestId, int32_t>, int32_t> indices;
  for (const auto& life : trace.lives) {
    v1::TracedRequest& out = *response.add_requests();
    out.set_request_id(life->outcome.id);
    out.set_agent(life->agent);
    out.set_trace_id(life->outcome.trace_id);
    out.set_arrived_us(micros(life->stages.arrived));
    out.set_ended_us(micros(std::min(life->stages.ended, trace.now)));
    out.set_over(life->stages.over());
    out.set_error(ErrorOf(life->outcome.status));
    SetRoot(life->outcome.status, out);
    out.set_refused(life->refused);
    out.set_overlap_tokens(static_cast<int32_t>(OverlapTokens(*life)));
    for (const PhaseSpan& span : SpansOf(*life, trace.now)) {
      v1::Span& proto = *out.add_spans();
      proto.set_phase(ToProto(span.phase));
      proto.set_begin_us(micros(span.begin));
      proto.set_end_us(micros(span.end));
      proto.set_tokens(span.tokens);
      proto.set_steps(span.steps);
    }
    out.mutable_usage()->set_prompt_tokens(life->outcome.prompt_tokens);
    out.mutable_usage()->set_cached_tokens(life->outcome.cached_tokens);
    out.mutable_usage()->set_completion_tokens(life->outcome.completion_tokens);
    out.set_upstreams_omitted(life->upstreams_omitted);
    out.set_resumed(life->outcome.resumed);
    out.set_mixed_numerics(life->outcome.mixed_numerics);
    out.set_attempt(life->outcome.attempt);
    if (life->refused) continue;
    for (const int32_t attempt : {0, life->outcome.attempt}) {
      indices[{life->outcome.id, attempt}] = response.requests_size() - 1;
    }
    out.set_waits_for(life->waits_for);
    for (const RequestId& id : life->awaited) out.add_awaited(id);
  }
  for (int i = 0; i < response.requests_size(); ++i) {
    const RequestLife& life = *trace.lives[static_cast<size_t>(i)];
    for (size_t k = 0; k < life.upstreams.size(); ++k) {
      const auto found = indices.find({life.upstreams[k], life.upstream_attempts[k]});
      if (found != indices.end()) response.mutable_requests(i)->add_upstreams(found->second);
    }
  }
  return response;
}

v1::ListWorkflowsResponse ToProto(const Router::Workflows& workflows) {
  v1::ListWorkflowsResponse response;
  for (const WorkflowView& view : workflows.views) {
    v1::Workflow& out = *response.add_workflows();
    out.set_name(view.name);
    out.set_requests(view.requests);
    out.set_live(view.live);
    out.set_refused(view.refused);
    out.set_latest_us(absl::ToInt64Microseconds(workflows.now - view.latest));
  }
  return response;
}

}  // namespace baton
