// Quotas of tenants: limits on running requests, live sessions and tokens per minute. RequestSlots
// applies the limit on requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton {

// In each field, 0 is no limit.
struct TenantQuota {
  int32_t max_requests = 0;       // with complete prompts (RequestSlots)
  int32_t max_sessions = 0;       // sessions with live requests
  int64_t tokens_per_minute = 0;  // of prompts, cached or not, and of outputs
};

struct Tenant {
  // Letters, digits and "-_.", at most 64 bytes. Empty if the router has no API keys.
  std::string name;
  TenantQuota quota;
  // True if the tenant may see the state of all tenants: workers, loads and metrics.
  bool is_operator = false;
};

// Returns RESOURCE_EXHAUSTED: the tenant has used up this quota.
absl::Status QuotaUsedUp(absl::string_view tenant, int64_t limit, absl::string_view quota);
// Returns whether QuotaUsedUp made the status.
bool IsQuotaRefusal(const absl::Status& status);

// Counts the sessions and tokens of one router's tenants. Not thread-safe.
class TenantQuotas {
 public:
  struct Refusal {
    // RESOURCE_EXHAUSTED. The message names the quota.
    absl::Status status;
    // An estimate if other sessions of the tenant must end first.
    absl::Duration retry_after;
  };
  // Returns a refusal if Begin would refuse every request of the tenant now, whatever its session.
  std::optional<Refusal> Check(const Tenant& tenant, absl::Time now);
  // Counts a request and the tokens that it may use, as far as they are known. Returns a refusal,
  // and counts nothing, if the tenant has used up a quota. `further` is true if an earlier request
  // of the same call was counted. Such a request is not refused for its tokens, since large calls
  // would always fail half-way otherwise.
  std::optional<Refusal> Begin(const Tenant& tenant, const std::string& session, int64_t tokens, absl::Time now,
                               bool further = false);
  // Returns whether half a minute's quota is left for requests after `tokens` tokens of prefill
  // hints.
  bool MayPrefillAhead(const Tenant& tenant, int64_t tokens, absl::Time now);
  // Counts tokens of prefill hints, and those of a request beyond what Begin counted.
  void Add(const Tenant& tenant, int64_t tokens, absl::Time now);
  // Ends a request that Begin counted. `tokens` is the number that it used beyond those passed to
  // Begin and Add; it may be negative.
  //
  // A tenant that has used more than its quota is refused until the excess is worked off, at the
  // rate of the quota. One request may therefore exceed the quota, and the next is refused.
  void End(const Tenant& tenant, const std::string& session, int64_t tokens, absl::Time now);

  void CheckInvariants() const;

 private:
  struct Use {
    int32_t requests = 0;                                // that have begun and not ended
    absl::flat_hash_map<std::string, int32_t> sessions;  // live requests of each session; never 0
    // Tokens used and not worked off, at time `at`.
    double tokens = 0;
    absl::Time at = absl::InfinitePast();
  };
  static void WorkOff(Use& use, int64_t tokens_per_minute, absl::Time now);

  // By tenant. The key file bounds the number of tenants.
  absl::flat_hash_map<std::string, Use> uses_;
};

}  // namespace baton
