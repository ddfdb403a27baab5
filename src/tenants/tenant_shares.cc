#include "tenants/tenant_shares.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "request/priority.h"

namespace baton {

bool TenantShares::Counts(const RequestSpec& spec) { return !spec.tenant.empty() && !IsLowPriority(spec.priority); }

absl::Status TenantShares::Check(const RequestSpec& spec, int32_t live) const {
  if (live >= limit_) {
    return absl::ResourceExhaustedError(absl::StrCat("overloaded: ", live, " live requests, limit ", limit_));
  }
  if (!Counts(spec)) return absl::OkStatus();
  const int32_t live_of_tenant = this->live(spec.tenant);
  if (live_of_tenant <= limit_ - live) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("overloaded: tenant '", spec.tenant, "' has ", live_of_tenant,
                                                   " live requests, and ", limit_ - live, " of the router's ", limit_,
                                                   " request slots are free; a tenant with more live requests than "
                                                   "free slots may not add one"));
}

void TenantShares::Begin(const RequestSpec& spec) {
  if (Counts(spec)) ++live_[spec.tenant];
}

void TenantShares::End(const RequestSpec& spec) {
  if (!Counts(spec)) return;
  const auto live = live_.find(spec.tenant);
  BATON_CHECK(live != live_.end(), spec.tenant);
  if (--live->second == 0) live_.erase(live);
}

void TenantShares::CheckInvariants(std::span<const std::string> tenants) const {
  absl::flat_hash_map<std::string, int32_t> live;
  for (const std::string& tenant : tenants) ++live[tenant];
  BATON_CHECK(live == live_, "the counts of live requests differ");
}

int32_t TenantShares::live(const std::string& tenant) const {
  const auto live = live_.find(tenant);
  return live == live_.end() ? 0 : live->second;
}

}  // namespace baton
