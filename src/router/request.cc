#include "router/request.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "agent/scoped_id.h"
#include "base/root_cause.h"
#include "base/strings.h"
#include "base/trace_context.h"
#include "request/output_lengths.h"
#include "router/router_action.h"
#include "router/wait_state.h"

namespace baton {
namespace {

std::vector<TokenId> TokensBeforeReferences(std::span<const PromptSegment> segments) {
  std::vector<TokenId> before;
  for (const PromptSegment& segment : segments) {
    const auto* tokens = std::get_if<std::vector<TokenId>>(&segment);
    if (tokens == nullptr) break;
    before.insert(before.end(), tokens->begin(), tokens->end());
  }
  return before;
}

}  // namespace

const std::string& TenantOf(const ClientRequest& request) {
  return request.spec.tenant.empty() ? request.spec.cache_domain : request.spec.tenant;
}

RefusedRequest AsRefused(const ClientRequest& request, const absl::Status& status, absl::Duration retry_after) {
  return {.id = request.id,
          .has_drawn_id = request.has_drawn_id,
          .cache_domain = request.spec.cache_domain,
          .tenant = TenantOf(request),
          .workflow = request.workflow,
          .agent = request.agent,
          .status = status,
          .retry_after = retry_after};
}

SessionKey SessionOf(const ClientRequest& request) {
  if (request.spec.tenant.empty()) return {request.spec.cache_domain, request.session};
  return {request.spec.tenant, ScopedSession(request)};
}

Request::Request(ClientRequest request, std::vector<BlockKey> first)
    : id(ScopedId(request.spec.cache_domain, request.id)), asked(std::move(request)) {
  // The KV of a prefill-only request has a use of its own.
  node.keep = asked.keep || asked.prefill_only;
  if (!asked.workflow.empty()) upstreams = UpstreamsOf(asked);
  ScopePrompt(asked);
  if (asked.prompt.segments.empty()) {
    SetRoute(ToRoute(asked, std::move(first)));
  } else {
    placement.route.keys = RouterKeys(asked, TokensBeforeReferences(asked.prompt.segments), std::move(first));
  }
  fixed_keys = placement.route.keys.size();
}

void Request::SetRoute(Route route) {
  placement = {.route = std::move(route), .prompt_tokens = static_cast<int32_t>(asked.spec.tokens.size())};
}

std::vector<BlockKey> Request::FixedKeys() const {
  const std::vector<BlockKey>& keys = placement.route.keys;
  return {keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(std::min(fixed_keys, keys.size()))};
}

std::vector<BlockKey> Request::CurrentKeys() const { return RouterKeys(asked, asked.spec.tokens, FixedKeys()); }

void Request::ExtendByOutput() {
  resuming = !output.empty();
  const size_t extended = asked.spec.tokens.size() + output.size();
  if (output.empty() || static_cast<size_t>(placement.prompt_tokens) == extended) return;
  TokenBuffer tokens = asked.spec.tokens;
  tokens.Append(output);
  placement.route.keys = RouterKeys(asked, tokens, FixedKeys());
  placement.prompt_tokens = static_cast<int32_t>(extended);
}

PrefillJob Request::StartPrefill(const RouterAction& action) {
  sent = asked.spec.tokens.size();
  restart = false;
  placed_at = action.worker;
  if (output.empty()) decoded_by.clear();
  PrefillJob job{.request_id = worker_id,
                 .spec = asked.spec,
                 .decode_worker = action.decode_worker,
                 .streaming = action.streaming};
  if (action.with_output) {
    job.spec.tokens.Append(output);
    job.spec.expected_tokens = ExpectedTokensLeft();
    job.spec.sampling.max_tokens -= completion_tokens;
  }
  return job;
}

PrefillAppend Request::AppendPrompt(const RouterAction& action) {
  PrefillAppend append;
  append.request_id = worker_id;
  append.tokens = asked.spec.tokens.Suffix(sent);
  append.restart = std::exchange(restart, false);
  append.last = action.kind == RouterAction::Kind::kClose;
  append.expected_new_tokens = asked.spec.expected_tokens;
  append.decode_worker = action.decode_worker;
  sent = asked.spec.tokens.size();
  return append;
}

DecodeJob Request::StartDecode() const {
  DecodeJob job{.request_id = worker_id, .spec = asked.spec};
  if (done) {
    job.reservation = done->reservation;
    job.decode_incarnation = done->decode_incarnation;
    job.blocks = done->blocks;
  }
  job.spec.tokens.Append(output);
  job.spec.generated = completion_tokens;
  return job;
}

void Request::NoteNumerics(std::string now) {
  if (!output.empty()) mixed_numerics |= now != numerics_id || absl::StrContains(now, "varying-bits");
  numerics_id = std::move(now);
}

absl::Status Request::CheckLogprobs(const TokenUpdate& update) const {
  if (asked.spec.sampling.logprobs && update.logprobs.size() != update.tokens.size()) {
    return absl::InvalidArgumentError(
        StrCat(update.logprobs.size(), " log probabilities for ", update.tokens.size(), " tokens"));
  }
  const bool first = output.empty() && (!update.tokens.empty() || update.finish == FinishReason::kLength);
  if (!asked.scores() || !first) return absl::OkStatus();
  const size_t tokens = update.prompt ? update.prompt->tokens.size() : 0;
  const size_t logprobs = update.prompt ? update.prompt->logprobs.size() : 0;
  if (tokens == asked.spec.tokens.size() && logprobs + 1 == tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(logprobs, " log probabilities and ", tokens, " ids for a prompt of ",
                                           asked.spec.tokens.size(), " tokens"));
}

int32_t Request::ExpectedTokensLeft() const {
  return static_cast<int32_t>(
      ExpectedLeft(asked.spec.expected_tokens, completion_tokens, asked.spec.sampling.max_tokens));
}

int64_t Request::TokensToHold() const {
  const int64_t limit = asked.spec.sampling.max_tokens;
  const int64_t likely = kRoomPerExpected * (int64_t{completion_tokens} + ExpectedTokensLeft());
  const bool whole = asked.has_max_tokens || !may_wait();
  return std::ssize(asked.spec.tokens) + (whole ? limit : std::min(limit, likely));
}

int64_t Request::KvTokensAsked() const {
  if (!asked.has_max_tokens || asked.prefill_only || completion_tokens > 0) return 0;
  // A streaming prompt may be restarted and become shorter. The last token of an output has no KV.
  const int64_t prompt = placement.route.streaming ? 1 : std::ssize(asked.spec.tokens);
  return prompt + asked.spec.sampling.max_tokens - 1;
}

KeepRoom Request::AskForRoom(const RouterAction& action) const {
  return {.request_id = worker_id,
          .kv_tokens = placement.prompt_tokens - 1,
          .expected_new_tokens = ExpectedTokensLeft(),
          .waited = action.waited};
}

size_t Request::BlocksAt(size_t blocks) const {
  const int64_t tokens = int64_t{done->cached_tokens} + done->shared_tokens + done->computed_tokens;
  return std::min(blocks, static_cast<size_t>(std::max<int64_t>(tokens, 0) / kBlockTokens));
}

RequestCharge Request::charge() const {
  const bool has_slot = slot.state == RequestSlots::State::kRunning && asked.prompt.segments.empty();
  return {number, std::ssize(asked.spec.tokens), has_slot ? asked.spec.expected_tokens : 0};
}

RequestOutcome Request::Outcome(const absl::Status& status, absl::Time now) const {
  RequestOutcome outcome;
  outcome.id = asked.id;
  outcome.attempt = node.attempt;
  outcome.call = asked.call;
  outcome.tenant = asked.spec.tenant;
  outcome.model = asked.served->name;
  outcome.trace_id = TraceIdOf(asked.spec.traceparent);
  outcome.prefill_worker = placed_at;
  outcome.decode_worker = decoded_by;
  outcome.prefill_only = asked.prefill_only;
  outcome.status = status;
  outcome.finish = finish.value_or(asked.prefill_only ? FinishReason::kLength : FinishReason::kStop);
  outcome.prompt_tokens = static_cast<int32_t>(asked.spec.tokens.size());
  outcome.completion_tokens = completion_tokens;
  if (session.session != nullptr) outcome.session_wait = std::min(stages.admitted, now) - stages.arrived;
  outcome.times = TimesOf(stages, now);
  outcome.total = std::max(now - stages.arrived, absl::ZeroDuration());
  if (completion_tokens > 0) outcome.first_token = outcome.total - outcome.times.decode;
  outcome.resumed = resumed;
  outcome.hedged = hedged;
  outcome.moved = moved;
  outcome.was_resuming = resuming;
  outcome.mixed_numerics = mixed_numerics;
  outcome.prefilled = counted().has_value();
  if (const std::optional<PrefillDone>& prefilled = counted()) {
    // Cached at the prefill worker or at the decode worker. The last token of the prompt has no KV
    // before it is decoded, so it never counts.
    outcome.cached_tokens = prefilled->cached_tokens + prefilled->shared_tokens + prefilled->held_tokens;
    outcome.shared_tokens = prefilled->shared_tokens;
    outcome.router_queue = std::max(stages.placed - stages.complete, absl::ZeroDuration());
  }
  return outcome;
}

absl::Status Request::ForDownstreams(const absl::Status& status) const {
  return status.ok() ? status : AsRootCause(status, asked.id, asked.agent);
}

RequestLife Request::Life(RequestOutcome outcome) const {
  RequestLife life;
  life.outcome = std::move(outcome);
  life.workflow = asked.workflow;
  life.cache_domain = asked.spec.cache_domain;
  life.agent = asked.agent;
  const size_t reported = std::min(upstreams.size(), kMostUpstreams);
  life.upstreams.assign(upstreams.begin(), upstreams.begin() + static_cast<std::ptrdiff_t>(reported));
  for (const RequestId& upstream : life.upstreams) {
    const auto used = node.used_attempts.find(ScopedId(asked.spec.cache_domain, upstream));
    life.upstream_attempts.push_back(used == node.used_attempts.end() ? 0 : used->second);
  }
  life.upstreams_omitted = static_cast<int32_t>(upstreams.size() - reported);
  life.stages = stages;
  if (!stages.over()) {
    const WaitState waits = WaitOf(*this);
    life.waits_for = TextOf(waits);
    for (const AwaitedOutput& one : waits.outputs.first) life.awaited.push_back(one.id);
  }
  if (counted()) life.steps = counted()->steps;
  return life;
}

}  // namespace baton
