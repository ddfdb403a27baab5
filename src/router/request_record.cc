#include "router/request_record.h"

#include <algorithm>
#include <utility>

#include "base/trace_context.h"

namespace baton {

const std::string& TenantOf(const ClientRequest& request) {
  return request.spec.tenant.empty() ? request.spec.cache_domain : request.spec.tenant;
}

SessionKey SessionOf(const ClientRequest& request) {
  if (request.spec.tenant.empty()) return {request.spec.cache_domain, request.session};
  return {request.spec.tenant, ScopedSession(request)};
}

PrefillJob RequestRecord::StartPrefill(const RouterAction& action) {
  sent = request.spec.tokens.size();
  restart = false;
  placed_at = action.worker;
  decoded_by.clear();
  return {.request_id = worker_id, .spec = request.spec, .decode_worker = action.decode_worker, .open = action.open};
}

PrefillAppend RequestRecord::AppendPrompt(const RouterAction& action) {
  PrefillAppend append;
  append.request_id = worker_id;
  append.tokens = request.spec.tokens.Suffix(sent);
  append.restart = std::exchange(restart, false);
  append.last = action.kind == RouterAction::Kind::kClose;
  append.max_new_tokens = request.spec.sampling.max_tokens;
  append.decode_worker = action.decode_worker;
  sent = request.spec.tokens.size();
  return append;
}

DecodeJob RequestRecord::StartDecode() const {
  return {.request_id = worker_id,
          .spec = request.spec,
          .reservation = done->reservation,
          .decode_incarnation = done->decode_incarnation,
          .blocks = done->blocks};
}

size_t RequestRecord::BlocksAt(size_t blocks) const {
  const int64_t tokens = int64_t{done->cached_tokens} + done->shared_tokens + done->computed_tokens;
  return std::min(blocks, static_cast<size_t>(std::max<int64_t>(tokens, 0) / kBlockTokens));
}

// The prompt's last token has no KV before it is decoded, so it never counts as cached.
int32_t RequestRecord::CachedTokens() const {
  if (request.prefill_only) return done->cached_tokens + done->shared_tokens;
  return std::max(static_cast<int32_t>(request.spec.tokens.size()) - 1 - done->computed_tokens, 0);
}

RequestOutcome RequestRecord::Outcome(const absl::Status& status, absl::Time now) const {
  RequestOutcome outcome;
  outcome.status = status;
  outcome.finish = finish.value_or(request.prefill_only ? FinishReason::kLength : FinishReason::kStop);
  outcome.prompt_tokens = static_cast<int32_t>(request.spec.tokens.size());
  outcome.completion_tokens = completion_tokens;
  outcome.first_token = first_token;
  outcome.session_wait = held ? now - arrived : session_wait;
  outcome.upstream = complete - arrived;
  outcome.total = now - arrived;
  outcome.prefilled = done.has_value();
  if (done) {
    outcome.cached_tokens = CachedTokens();
    outcome.shared_tokens = std::min(done->shared_tokens, outcome.cached_tokens);
    outcome.queue = queue;
    outcome.router_queue = std::max(placed - complete, absl::ZeroDuration());
    outcome.prefill = done->compute + done->copied;
    outcome.handoff = done->handoff;
  }
  return outcome;
}

RequestParties RequestRecord::Parties() const {
  return {.id = request.id,
          .call = request.call,
          .tenant = request.spec.tenant,
          .model = request.served->name,
          .trace_id = TraceIdOf(request.spec.traceparent),
          .prefill_worker = placed_at,
          .decode_worker = decoded_by,
          .prefill_only = request.prefill_only};
}

RequestLife RequestRecord::Life() const {
  RequestLife life;
  life.id = request.id;
  life.workflow = request.workflow;
  life.tenant = request.spec.cache_domain;
  life.agent = request.agent;
  life.trace_id = TraceIdOf(request.spec.traceparent);
  life.prefill_only = request.prefill_only;
  const size_t told = std::min(upstreams.size(), kMostUpstreams);
  life.upstreams.assign(upstreams.begin(), upstreams.begin() + static_cast<std::ptrdiff_t>(told));
  life.upstreams_omitted = static_cast<int32_t>(upstreams.size() - told);
  life.arrived = arrived;
  if (request.segments.empty()) life.complete = complete;
  life.placed = placed;
  life.prefilled = prefilled;
  life.prompt_tokens = static_cast<int32_t>(request.spec.tokens.size());
  if (done) {
    life.steps = done->steps;
    life.handoff = done->handoff;
    life.cached_tokens = CachedTokens();
  }
  if (completion_tokens > 0) life.first_token = arrived + first_token;
  life.completion_tokens = completion_tokens;
  return life;
}

}  // namespace baton
