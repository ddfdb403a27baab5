#include "frontend/callers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status.h"
#include "request/output_lengths.h"

namespace baton {

std::string CacheDomainOf(const Tenant& tenant, const std::string& cache_salt) {
  // A tenant's name contains no line feed.
  return tenant.name.empty() ? cache_salt : absl::StrCat(tenant.name, "\n", cache_salt);
}

// Forwards everything to another sink, and reports the end of the request to the quotas.
class Callers::CountedSink final : public RequestSink {
 public:
  CountedSink(Callers& callers, Caller caller, const ClientRequest& request, std::shared_ptr<RequestSink> sink)
      : callers_(callers),
        caller_(std::move(caller)),
        session_(ScopedSession(request)),
        charged_(TokensOf(request)),
        expected_(ExpectedNow(request)),
        charged_output_(expected_),
        limit_(OutputLimit(request)),
        sink_(std::move(sink)) {}
  ~CountedSink() override {
    if (!ended_) End(0);  // the router did not accept the request
  }

  // The segments of a prompt are charged from the start, also those behind outputs.
  void OnCharge(const RequestCharge& charge) override {
    expected_ = charged_output_ = charge.expected_tokens;
    known_ = std::max(known_, charge.prompt_tokens);
    Charge(std::max(charged_, charge.prompt_tokens + charge.expected_tokens));
    sink_->OnCharge(charge);
  }
  void OnUpdate(TokenUpdate update) override {
    made_ += std::ssize(update.tokens);
    if (made_ > charged_output_) ChargeLongerOutput();
    sink_->OnUpdate(std::move(update));
  }
  void OnEnd(const RequestOutcome& outcome) override {
    ended_ = true;
    // A prompt that began again and failed was computed as far as it was known before.
    End(std::max(known_, int64_t{outcome.prompt_tokens}) + outcome.completion_tokens);
    sink_->OnEnd(outcome);
  }

 private:
  void ChargeLongerOutput() {
    // The limit of a prompt that streams may be an estimate.
    const int64_t output = made_ + ExpectedLeft(expected_, made_, std::max(limit_, made_));
    Charge(charged_ + output - charged_output_);
    charged_output_ = output;
  }
  // Charges the request with `tokens` in all.
  void Charge(int64_t tokens) {
    callers_.AddTokens(caller_, tokens - charged_);
    charged_ = tokens;
  }
  void End(int64_t tokens) { callers_.End(*caller_, session_, tokens - charged_); }

  Callers& callers_;
  const Caller caller_;
  const std::string session_;
  int64_t charged_;         // tokens of prompt and output
  int64_t known_ = 0;       // most tokens of the prompt so far
  int64_t expected_;        // 0 before the prompt is complete
  int64_t charged_output_;  // part of charged_
  const int64_t limit_;
  const std::shared_ptr<RequestSink> sink_;
  // Written by the router's threads, one after another.
  int64_t made_ = 0;
  bool ended_ = false;
};

Callers::Callers(const KeyRing& keys, const Clock& clock, Metrics& metrics)
    : keys_(keys), clock_(clock), counts_(metrics.Create<TenantCounts>()) {
  // The series without a tenant exists from the start, because rules that subtract series need it.
  counts_.quota_refusals.Of("");
}

absl::StatusOr<Caller> Callers::Authenticate(std::string_view authorization, const CallOrigin& origin) {
  absl::StatusOr<Caller> caller = keys_.Authenticate(authorization);
  if (!absl::IsUnauthenticated(caller.status())) return caller;
  if (const std::optional<int64_t> kept_back = wrong_keys_.Pass()) {
    spdlog::warn("{}: {} called {} with {}; {} more such calls since the last such line", origin.protocol, origin.peer,
                 origin.target, authorization.empty() ? "no key" : "an unknown key", *kept_back);
  }
  return caller;
}

absl::StatusOr<Caller> Callers::AuthenticateOperator(std::string_view authorization, const CallOrigin& origin) {
  ASSIGN_OR_RETURN(Caller caller, Authenticate(authorization, origin));
  if (!keys_.asks() || caller->is_operator) return caller;
  return absl::PermissionDeniedError(
      absl::StrCat("tenant '", caller->name, "' is no operator: expected a key of a tenant with operator = true"));
}

std::optional<TenantQuotas::Refusal> Callers::Check(const Caller& caller) {
  if (!keys_.asks()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto refusal = quotas_.Check(*caller, clock_.Now());
  if (refusal) counts_.quota_refusals.Increment(caller->name);
  return refusal;
}

Callers::Counted Callers::Count(const Caller& caller, const ClientRequest& request, std::shared_ptr<RequestSink> sink,
                                bool further) {
  if (!keys_.asks()) return {.sink = std::move(sink)};
  {
    const std::lock_guard lock(mutex_);
    const auto refusal = quotas_.Begin(*caller, ScopedSession(request), TokensOf(request), clock_.Now(), further);
    if (refusal) counts_.quota_refusals.Increment(caller->name);
    if (refusal) return {.status = refusal->status, .retry_after = refusal->retry_after};
  }
  return {.sink = std::make_shared<CountedSink>(*this, caller, request, std::move(sink))};
}

// The output of a prompt with references is charged once the prompt is complete.
int64_t Callers::ExpectedNow(const ClientRequest& request) {
  return request.prompt.segments.empty() ? request.spec.expected_tokens : 0;
}

int64_t Callers::TokensOf(const ClientRequest& request) {
  int64_t prompt = std::ssize(request.spec.tokens);
  for (const PromptSegment& segment : request.prompt.segments) {
    const auto* tokens = std::get_if<std::vector<TokenId>>(&segment);
    if (tokens != nullptr) prompt += std::ssize(*tokens);
  }
  return prompt + ExpectedNow(request);
}

bool Callers::MayPrefillAhead(const Caller& caller, int64_t tokens) {
  if (!keys_.asks()) return true;
  const std::lock_guard lock(mutex_);
  return quotas_.MayPrefillAhead(*caller, tokens, clock_.Now());
}

void Callers::AddTokens(const Caller& caller, int64_t tokens) {
  if (!keys_.asks()) return;
  const std::lock_guard lock(mutex_);
  quotas_.Add(*caller, tokens, clock_.Now());
}

void Callers::NoteRefusal(const Caller& caller, const absl::Status& refusal) {
  if (IsQuotaRefusal(refusal)) counts_.quota_refusals.Increment(caller->name);
}

void Callers::End(const Tenant& tenant, const std::string& session, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  quotas_.End(tenant, session, tokens, clock_.Now());
}

}  // namespace baton
