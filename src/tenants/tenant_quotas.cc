#include "tenants/tenant_quotas.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {
namespace {

constexpr char kQuotaMark[] = "baton/quota";  // key of a status's payload

}  // namespace

absl::Status QuotaUsedUp(absl::string_view tenant, int64_t limit, absl::string_view quota) {
  absl::Status refusal = absl::ResourceExhaustedError(
      absl::StrCat("tenant '", tenant, "': the quota of ", limit, " ", quota, " is used up"));
  refusal.SetPayload(kQuotaMark, absl::Cord());
  return refusal;
}

bool IsQuotaRefusal(const absl::Status& status) { return status.GetPayload(kQuotaMark).has_value(); }

void TenantQuotas::WorkOff(Use& use, int64_t tokens_per_minute, absl::Time now) {
  if (now <= use.at) return;
  const double minutes = absl::ToDoubleMinutes(now - use.at);
  use.tokens =
      tokens_per_minute == 0 ? 0 : std::max(0.0, use.tokens - minutes * static_cast<double>(tokens_per_minute));
  use.at = now;
}

std::optional<TenantQuotas::Refusal> TenantQuotas::Check(const Tenant& tenant, absl::Time now) {
  const int64_t quota = tenant.quota.tokens_per_minute;
  Use& use = uses_[tenant.name];
  WorkOff(use, quota, now);
  const double over = use.tokens - static_cast<double>(quota);
  if (quota == 0 || over < 0) return std::nullopt;
  return Refusal{QuotaUsedUp(tenant.name, quota, "tokens per minute"),
                 absl::Minutes((over + 1) / static_cast<double>(quota))};
}

std::optional<TenantQuotas::Refusal> TenantQuotas::Begin(const Tenant& tenant, const std::string& session,
                                                         int64_t tokens, absl::Time now, bool further) {
  if (!further) {
    if (auto refusal = Check(tenant, now)) return refusal;
  }
  const int32_t most = tenant.quota.max_sessions;
  Use& use = uses_[tenant.name];
  const bool new_session = !session.empty() && !use.sessions.contains(session);
  if (most > 0 && new_session && std::ssize(use.sessions) >= most) {
    return Refusal{QuotaUsedUp(tenant.name, most, "sessions"), absl::Seconds(1)};
  }
  ++use.requests;
  if (!session.empty()) ++use.sessions[session];
  WorkOff(use, tenant.quota.tokens_per_minute, now);
  use.tokens += static_cast<double>(tokens);
  return std::nullopt;
}

bool TenantQuotas::MayPrefillAhead(const Tenant& tenant, int64_t tokens, absl::Time now) {
  const auto quota = static_cast<double>(tenant.quota.tokens_per_minute);
  Use& use = uses_[tenant.name];
  WorkOff(use, tenant.quota.tokens_per_minute, now);
  return quota == 0 || use.tokens + static_cast<double>(tokens) <= quota / 2;
}

void TenantQuotas::Add(const Tenant& tenant, int64_t tokens, absl::Time now) {
  Use& use = uses_[tenant.name];
  WorkOff(use, tenant.quota.tokens_per_minute, now);
  use.tokens += static_cast<double>(tokens);
}

void TenantQuotas::End(const Tenant& tenant, const std::string& session, int64_t tokens, absl::Time now) {
  const auto it = uses_.find(tenant.name);
  BATON_CHECK(it != uses_.end() && it->second.requests > 0, "End without Begin");
  Use& use = it->second;
  WorkOff(use, tenant.quota.tokens_per_minute, now);
  // Some of these tokens may be worked off already.
  use.tokens = std::max(0.0, use.tokens + static_cast<double>(tokens));
  --use.requests;
  if (!session.empty()) {
    const auto live = use.sessions.find(session);
    BATON_CHECK(live != use.sessions.end(), "End with another session than Begin");
    if (--live->second == 0) use.sessions.erase(live);
  }
}

void TenantQuotas::CheckInvariants() const {
  for (const auto& [tenant, use] : uses_) {
    int32_t in_sessions = 0;
    for (const auto& [session, requests] : use.sessions) {
      BATON_CHECK(requests > 0, "a session without requests is counted");
      in_sessions += requests;
    }
    BATON_CHECK(in_sessions <= use.requests && use.tokens >= 0, "the counts of a tenant are wrong");
  }
}

}  // namespace baton
