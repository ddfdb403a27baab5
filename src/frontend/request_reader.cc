#include "frontend/request_reader.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/request_id.h"
#include "base/status.h"
#include "base/strings.h"
#include "frontend/prompt_reader.h"
#include "model/token_constraints.h"
#include "request/priority.h"
#include "rpc/sampling_convert.h"

namespace baton {
namespace {

absl::Status CheckLength(std::string_view field, size_t bytes, size_t limit) {
  if (bytes <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(field, ": ", bytes, " bytes, limit ", limit));
}

absl::Status ReadContext(const v1::GenerateRequest& in, const ServedModel& model, ContextUse& out) {
  RETURN_IF_ERROR(CheckRequestId("context_id", in.context_id()));
  if (in.context_id().empty()) {
    if (!in.has_context_length()) return absl::OkStatus();
    return absl::InvalidArgumentError("context_length: requires a context_id");
  }
  if (in.has_context_length() && in.context_length() < 0) {
    return absl::InvalidArgumentError(StrCat("context_length: expected >= 0, got ", in.context_length()));
  }
  out.id = in.context_id();
  out.is_within_prompt = in.has_chat();
  if (in.has_context_length()) out.length = in.context_length();
  if (HavePrefix(in.segments())) {
    const auto prefix = model.tokenizer->prompt_prefix();
    out.prefix.assign(prefix.begin(), prefix.end());
  }
  return absl::OkStatus();
}

absl::Status CheckFirst(const PromptSpec& prompt) {
  const auto references = std::ranges::count_if(
      prompt.segments, [](const PromptSegment& segment) { return std::holds_alternative<Reference>(segment); });
  if (prompt.first >= 0 && prompt.first <= references) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("first: expected [0, ", references, "], up to the number of output_of, got ", prompt.first));
}

// Reads all fields except those of the output.
absl::StatusOr<ClientRequest> ReadInput(const v1::GenerateRequest& in, const PromptLimit& limit, absl::Time now,
                                        const FieldPaths& paths, const ChatValues* values) {
  const ServedModel& model = limit.model;
  ClientRequest out;
  out.served = &model;
  RETURN_IF_ERROR(CheckNames(in));
  if (in.priority() < -kMaxPriority || in.priority() > kMaxPriority) {
    return absl::InvalidArgumentError(
        StrCat("priority: expected [", -kMaxPriority, ", ", kMaxPriority, "], got ", in.priority()));
  }
  RETURN_IF_ERROR(ReadContext(in, model, out.context));
  const bool continues = !out.context.id.empty();
  if (!in.has_segments() && !in.has_chat() && !continues) {
    return absl::InvalidArgumentError("prompt: expected segments or chat, got none");
  }
  ASSIGN_OR_RETURN(out.prompt.segments, in.has_chat() ? ReadPrompt(in.chat(), limit, now, paths, values)
                                                      : ReadPrompt(in.segments(), limit, !continues, paths));
  if (out.prompt.segments.empty() && !continues) {
    return absl::InvalidArgumentError(StrCat(limit.path, ": is empty, expected at least one token"));
  }
  if (in.join() != v1::JOIN_ORDER && in.join() != v1::JOIN_ARRIVAL) {
    return absl::InvalidArgumentError(StrCat("join: unknown value ", int{in.join()}));
  }
  out.prompt.first = in.first();
  RETURN_IF_ERROR(CheckFirst(out.prompt));
  out.prompt.join = in.join() == v1::JOIN_ARRIVAL ? Join::kArrival : Join::kOrder;
  // A prompt without references becomes the request's token buffer at once.
  if (out.prompt.segments.size() == 1 && std::holds_alternative<std::vector<TokenId>>(out.prompt.segments[0])) {
    out.spec.tokens = std::get<std::vector<TokenId>>(std::move(out.prompt.segments[0]));
    out.prompt.segments.clear();
  }
  out.session = in.session_id();
  out.spec.cache_domain = in.cache_salt();
  out.id = in.request_id();
  out.spec.priority = in.priority();
  out.workflow = in.workflow();
  out.agent = in.agent();
  out.keep = in.keep();
  ASSIGN_OR_RETURN(out.workflow_limits, ReadWorkflowLimits(in));
  return out;
}

// Returns the path of the whole prompt.
std::string PromptPath(const v1::GenerateRequest& in, const FieldPaths& paths) {
  if (!paths.prompt.empty()) return paths.prompt;
  return in.has_chat() ? paths.messages : in.has_segments() ? paths.segments : "prompt";
}

// Refuses a request whose constraints exclude all tokens from the beginning.
absl::Status CheckAllowed(const ClientRequest& request) {
  const SamplingParams& sampling = request.spec.sampling;
  if (sampling.allowed_token_ids.empty()) return absl::OkStatus();
  const ServedModel& model = *request.served;
  const TokenConstraints constraints(sampling, RulesOf(sampling, *model.tokenizer, model.eos_ids, {}));
  if (!constraints.AllowNothing()) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(request.form.paths.sampling(SamplingFieldNamed("allowed_token_ids")),
                                           ": bad_words and min_tokens exclude all of these tokens"));
}

absl::Status ReadSampling(const v1::Sampling& sampling, const ServedModel& model, ClientRequest& out) {
  out.spec.sampling = FromProto(sampling, model.sampling);
  out.has_max_tokens = sampling.has_max_tokens();
  if (sampling.max_tokens() < 0) {
    return absl::InvalidArgumentError(
        StrCat(out.form.paths.max_tokens, ": expected >= 0, got ", sampling.max_tokens()));
  }
  if (!out.has_max_tokens || out.prefill_only) out.spec.sampling.max_tokens = 1;
  RETURN_IF_ERROR(Validate(out.spec.sampling, model.vocab, out.form.paths.sampling));
  if (!out.has_max_tokens) out.spec.sampling.max_tokens = 0;  // until SettleMaxTokens
  absl::Status named;
  for (const SamplingField& field : SamplingFields()) {
    VisitValue(out.spec.sampling, field, [&]<typename Value>(const Value& value) {
      if constexpr (std::is_same_v<Value, std::vector<TokenId>>) {
        named.Update(CheckNamed(out.form.paths.sampling(field), value, model));
      }
    });
  }
  RETURN_IF_ERROR(named);
  if (out.has_max_tokens) RETURN_IF_ERROR(CheckMinTokens(out));
  return CheckAllowed(out);
}

}  // namespace

absl::StatusOr<WorkflowLimits> ReadWorkflowLimits(const v1::GenerateRequest& in) {
  WorkflowLimits out;
  if (!in.has_workflow_limits()) return out;
  if (in.workflow().empty()) return absl::InvalidArgumentError("workflow_limits: requires a workflow");
  const v1::WorkflowLimits& limits = in.workflow_limits();
  if (limits.deadline_ms() < 0 || limits.deadline_ms() > kMaxTimeoutMs) {
    return absl::InvalidArgumentError(
        StrCat("workflow_limits.deadline_ms: expected [0, ", kMaxTimeoutMs, "], got ", limits.deadline_ms()));
  }
  if (limits.max_tokens() < 0) {
    return absl::InvalidArgumentError(StrCat("workflow_limits.max_tokens: expected >= 0, got ", limits.max_tokens()));
  }
  if (limits.deadline_ms() > 0) out.deadline = absl::Milliseconds(limits.deadline_ms());
  if (limits.max_tokens() > 0) out.max_tokens = limits.max_tokens();
  return out;
}

size_t TextBytes(const v1::Segment& segment) {
  size_t bytes = segment.text().size() + segment.output_of().substitute().size();
  for (const v1::Segment& part : segment.group().parts()) bytes += TextBytes(part);
  return bytes;
}

size_t TextBytes(const v1::Segments& segments) {
  size_t bytes = 0;
  for (const v1::Segment& segment : segments.segments()) bytes += TextBytes(segment);
  return bytes;
}

size_t TextBytes(const v1::Chat& chat) {
  size_t bytes = chat.tools().size() + chat.template_kwargs().size();
  for (const v1::ChatMessage& message : chat.messages()) {
    bytes += message.content().size() + message.tool_calls().size() + message.reasoning_content().size();
    for (const v1::Segment& part : message.parts()) bytes += TextBytes(part);
  }
  return bytes;
}

absl::Duration TimeoutOf(const v1::GenerateRequest& request) {
  const bool has = request.timeout_ms() > 0 && request.timeout_ms() <= kMaxTimeoutMs;
  return has ? absl::Milliseconds(request.timeout_ms()) : absl::InfiniteDuration();
}

absl::Status CheckNames(const v1::GenerateRequest& request) {
  RETURN_IF_ERROR(CheckLength("session_id", request.session_id().size(), kMaxNameBytes));
  if (std::ranges::any_of(request.session_id(), [](unsigned char c) { return c < 0x20; })) {
    // Operators read session ids, in `baton status` and at /ui.
    return absl::InvalidArgumentError("session_id: expected no control characters");
  }
  RETURN_IF_ERROR(CheckLength("cache_salt", request.cache_salt().size(), kMaxNameBytes));
  RETURN_IF_ERROR(CheckLength("workflow", request.workflow().size(), kMaxAgentBytes));
  RETURN_IF_ERROR(CheckLength("agent", request.agent().size(), kMaxAgentBytes));
  return CheckRequestId("request_id", request.request_id());
}

absl::StatusOr<ClientRequest> ReadRequest(const v1::GenerateRequest& request, const ServedModels& models,
                                          absl::Time now, const RequestForm& form, const ChatValues* values) {
  ASSIGN_OR_RETURN(const ServedModel* model, models.Find(request.model()));
  const bool generates = !request.sampling().has_max_tokens() || request.sampling().max_tokens() != 0;
  const std::string path = PromptPath(request, form.paths);
  const PromptLimit limit{*model, generates ? 1 : 0, path};
  ASSIGN_OR_RETURN(ClientRequest out, ReadInput(request, limit, now, form.paths, values));
  out.form = form;
  out.form.paths.prompt = path;
  const bool scores = request.sampling().has_prompt_logprobs();
  out.prefill_only = !generates && !scores;
  RETURN_IF_ERROR(ReadSampling(request.sampling(), *model, out));
  if (request.timeout_ms() < 0 || request.timeout_ms() > kMaxTimeoutMs) {
    return absl::InvalidArgumentError(
        StrCat("timeout_ms: expected [0, ", kMaxTimeoutMs, "], got ", request.timeout_ms()));
  }
  if (request.expected_tokens() < 0) {
    return absl::InvalidArgumentError(StrCat("expected_tokens: expected >= 0, got ", request.expected_tokens()));
  }
  out.expected_tokens = request.expected_tokens();
  if (!out.prompt.segments.empty()) RETURN_IF_ERROR(CheckMaxTokens(out));
  if (scores) RETURN_IF_ERROR(CheckScoring(out, PromptLogprobsOf(out)));
  if (!out.prefill_only && out.prompt.segments.empty() && out.context.id.empty()) RETURN_IF_ERROR(SettleMaxTokens(out));
  return out;
}

v1::GenerateRequest AsGenerate(v1::PrefillOnlyRequest request) {
  v1::GenerateRequest out;
  out.set_model(std::move(*request.mutable_model()));
  if (request.has_segments()) *out.mutable_segments() = std::move(*request.mutable_segments());
  if (request.has_chat()) {
    *out.mutable_chat() = std::move(*request.mutable_chat());
    if (!out.chat().has_add_generation_prompt()) out.mutable_chat()->set_add_generation_prompt(false);
  }
  out.mutable_sampling()->set_max_tokens(0);
  out.set_session_id(std::move(*request.mutable_session_id()));
  out.set_request_id(std::move(*request.mutable_request_id()));
  out.set_priority(request.priority());
  out.set_cache_salt(std::move(*request.mutable_cache_salt()));
  out.set_join(request.join());
  out.set_first(request.first());
  out.set_timeout_ms(request.timeout_ms());
  if (request.has_workflow_limits()) *out.mutable_workflow_limits() = request.workflow_limits();
  out.set_workflow(std::move(*request.mutable_workflow()));
  out.set_agent(std::move(*request.mutable_agent()));
  out.set_context_id(std::move(*request.mutable_context_id()));
  if (request.has_context_length()) out.set_context_length(request.context_length());
  return out;
}

}  // namespace baton
