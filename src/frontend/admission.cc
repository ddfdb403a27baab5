#include "frontend/admission.h"

#include <openssl/rand.h>

#include <array>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/logging.h"
#include "base/request_id.h"
#include "base/retry.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton {
namespace {

// Upper bounds for one tenant.
constexpr size_t kLongPromptsWaiting = 256;
constexpr size_t kViewsWaiting = 32;
// Upper bound for all tenants together.
constexpr size_t kBytesWaiting = 256u << 20;

}  // namespace

ClientAdmission::ClientAdmission(Router& router, ServedModels& models, const Clock& clock, Callers& callers,
                                 int32_t default_max_tokens)
    : router_(router),
      models_(models),
      clock_(clock),
      callers_(callers),
      default_max_tokens_(default_max_tokens),
      waiting_(std::make_shared<BodyBytes>(kBytesWaiting)),
      long_prompts_(/*threads=*/2, kLongPromptsWaiting),
      views_(/*threads=*/1, kViewsWaiting) {}

absl::Status ClientAdmission::Open() const {
  return draining_ ? absl::UnavailableError("the router shuts down") : absl::OkStatus();
}

std::optional<TenantQuotas::Refusal> ClientAdmission::RefusalFor(const Caller& caller) {
  if (absl::Status open = Open(); !open.ok()) return TenantQuotas::Refusal{std::move(open), {}};
  if (!callers_.asks()) return std::nullopt;
  if (auto refusal = callers_.Check(caller)) return refusal;
  absl::Status slots = router_.CheckSlots(caller->name);
  if (slots.ok()) return std::nullopt;
  callers_.NoteRefusal(caller, slots);
  return TenantQuotas::Refusal{std::move(slots), {}};
}

RequestId ClientAdmission::DrawId() {
  std::array<unsigned char, 16> bytes;
  BATON_CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1, "OpenSSL returned no random bytes");
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void ClientAdmission::JoinDecoders() {
  for (const auto& [decoder, module] : router_.Decoders()) {
    const absl::Status joined = models_.Join(decoder, module);
    if (!joined.ok() && not_joined_.Pass(clock_.Now())) spdlog::warn("{}", std::string(Message(joined)));
  }
}

absl::Status ClientAdmission::Run(const Tenant& tenant, size_t text_bytes, absl::AnyInvocable<void()> task) {
  if (IsShort(text_bytes)) {
    task();
    return absl::OkStatus();
  }
  if (long_prompts_.TryRun(tenant.name, std::move(task))) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("overloaded: ", kLongPromptsWaiting, " long prompts of this tenant wait for a thread"));
}

absl::Status ClientAdmission::RunView(const Tenant& tenant, absl::AnyInvocable<void()> task) {
  if (views_.TryRun(tenant.name, std::move(task))) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("overloaded: ", kViewsWaiting, " workflow queries of this tenant wait for a thread"));
}

void ClientAdmission::Accept(std::shared_ptr<const v1::GenerateRequest> request, const CallContext& context,
                             std::shared_ptr<CallSink> sink) {
  const size_t bytes = PromptBytes(*request);
  std::shared_ptr<BodyCharge> charge;  // null if the request does not wait
  if (!IsShort(bytes)) {
    charge = std::make_shared<BodyCharge>(waiting_, context.caller->name);
    if (!charge->Add(request->ByteSizeLong())) {
      return Refuse(*sink, context.caller, *request,
                    absl::ResourceExhaustedError("overloaded: too many bytes of large requests wait for a thread"));
    }
  }
  const absl::Status run =
      Run(*context.caller, bytes, [this, request, context, sink, charge] { Admit(*request, context, sink); });
  if (!run.ok()) Refuse(*sink, context.caller, *request, run);
}

void ClientAdmission::Admit(const v1::GenerateRequest& proto, const CallContext& context,
                            const std::shared_ptr<CallSink>& sink) {
  // A long prompt may have waited for a thread. Its client may have left since then.
  if (const absl::Status call = sink->handle().CheckCall(); !call.ok()) {
    return Refuse(*sink, context.caller, proto, call);
  }
  absl::StatusOr<ClientRequest> request = Read(proto, context);
  if (!request.ok()) return Refuse(*sink, context.caller, proto, request.status());
  Submit(*std::move(request), context, sink);
}

absl::StatusOr<ClientRequest> ClientAdmission::Read(const v1::GenerateRequest& proto, const CallContext& context,
                                                    const RequestForm& form, const ChatValues* values) {
  if (clock_.Now() >= context.deadline) {
    return absl::DeadlineExceededError("the deadline passed before the prompt was read");
  }
  if (!models_.Contains(proto.model())) JoinDecoders();
  RequestForm completed = form;
  if (form.default_max_tokens == 0) completed.default_max_tokens = default_max_tokens_;
  ASSIGN_OR_RETURN(ClientRequest request, ReadRequest(proto, models_, absl::Now(), completed, values));
  request.deadline = context.deadline;
  request.received = context.received;
  request.call = context.id;
  if (!context.span.trace_id.empty()) request.spec.traceparent = ToTraceparent(context.span);
  request.spec.tenant = context.caller->name;
  request.most_requests = context.caller->quota.max_requests;
  request.spec.cache_domain = CacheDomainOf(*context.caller, request.spec.cache_domain);
  return request;
}

std::optional<RequestTicket> ClientAdmission::Submit(ClientRequest request, const CallContext& context,
                                                     const std::shared_ptr<CallSink>& sink) {
  if (request.id.empty()) {
    request.id = context.drawn_id.empty() ? DrawId() : context.drawn_id;
    request.has_drawn_id = true;
  }
  sink->SetId(request.id);
  if (callers_.asks()) request.spec.expected_tokens = router_.ExpectedTokens(request);
  Callers::Counted counted = callers_.Count(context.caller, request, sink, context.further);
  if (counted.sink == nullptr) {
    router_.Refused(AsRefused(request, counted.status, RetryDelayOf(counted.status, counted.retry_after)));
    Refuse(*sink, counted.status, counted.retry_after);
    return std::nullopt;
  }
  const absl::StatusOr<RequestTicket> ticket = router_.Submit(std::move(request), counted.sink);
  if (ticket.ok()) {
    sink->handle().Submitted(*ticket);
    return *ticket;
  }
  callers_.NoteRefusal(context.caller, ticket.status());
  counted.sink.reset();  // frees the quota before the client receives the refusal
  Refuse(*sink, ticket.status());
  return std::nullopt;
}

void ClientAdmission::AddPrefillHint(const Caller& caller, const RequestTicket& call, v1::GenerateRequest hint,
                                     const ChatValues& values) {
  for (v1::ChatMessage& message : *hint.mutable_chat()->mutable_messages()) {
    for (v1::Segment& part : *message.mutable_parts()) {
      if (part.has_output_of()) part.mutable_output_of()->set_request_id(NameOf(call.id));
    }
  }
  absl::StatusOr<ClientRequest> request = ReadRequest(hint, models_, absl::Now(), {}, &values);
  if (!request.ok()) return router_.metrics().OnPrefillHint(request.status().code());
  const int64_t tokens = Callers::TokensOf(*request);
  if (!callers_.MayPrefillAhead(caller, tokens))
    return router_.metrics().OnPrefillHint(absl::StatusCode::kResourceExhausted);
  if (router_.AddPrefillHint(call, *std::move(request))) callers_.AddTokens(caller, tokens);
}

void ClientAdmission::Refuse(CallSink& sink, const absl::Status& status, absl::Duration retry_after) {
  router_.metrics().OnRefused(status.code());
  sink.Refuse(status, retry_after);
}

void ClientAdmission::Refuse(CallSink& sink, const Caller& caller, const v1::GenerateRequest& request,
                             const absl::Status& status, absl::Duration retry_after) {
  NoteRefused(caller, request, status, retry_after);
  Refuse(sink, status, retry_after);
}

void ClientAdmission::NoteRefused(const Caller& caller, const v1::GenerateRequest& request, const absl::Status& status,
                                  absl::Duration retry_after) {
  // The router keeps these names, so they have the bounds of the API.
  if (request.cache_salt().size() > kMaxNameBytes) return;
  RefusedRequest refused{.cache_domain = CacheDomainOf(*caller, request.cache_salt()),
                         .status = status,
                         .retry_after = RetryDelayOf(status, retry_after)};
  refused.tenant = caller->name.empty() ? refused.cache_domain : caller->name;
  if (CheckRequestId("request_id", request.request_id()).ok()) refused.id = request.request_id();
  if (request.workflow().size() <= kMaxAgentBytes) refused.workflow = request.workflow();
  if (request.agent().size() <= kMaxAgentBytes) refused.agent = request.agent();
  if (!refused.id.empty() || !refused.workflow.empty()) router_.Refused(refused);
}

}  // namespace baton
