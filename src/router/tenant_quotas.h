// What each tenant may use of a router at a time, and of its tokens in a minute.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace baton {

// 0: as many as the router takes.
struct TenantQuota {
  int32_t max_requests = 0;       // live ones
  int32_t max_sessions = 0;       // that have live requests
  int64_t tokens_per_minute = 0;  // of prompts, cached or not, and of outputs
};

struct Tenant {
  std::string name;  // letters, digits and "-_.", at most 64 bytes; empty: the router asks nobody who they are
  TenantQuota quota;
  bool is_operator = false;  // may see what concerns all tenants: workers, loads, metrics
};

// Counts the requests of one router. Not thread-safe.
class TenantQuotas {
 public:
  struct Refusal {
    absl::Status status;         // RESOURCE_EXHAUSTED: names the quota
    absl::Duration retry_after;  // a guess where others of its requests must end first
  };
  // Whether Begin would refuse any request of the tenant now, whatever its session.
  std::optional<Refusal> Check(const Tenant& tenant, absl::Time now);
  // Counts a request, with the tokens that it may use as far as they are known, unless the tenant has used up a quota.
  // `further`: it belongs to a call whose first request was let in, and is not refused for tokens, else a large call
  // would be refused half-way whenever it came.
  std::optional<Refusal> Begin(const Tenant& tenant, const std::string& session, int64_t tokens, absl::Time now,
                               bool further = false);
  // Whether so many tokens more, of what is computed ahead, leave half a minute's for requests.
  bool HasSpare(const Tenant& tenant, int64_t tokens, absl::Time now);
  // They were computed ahead.
  void UseSpare(const Tenant& tenant, int64_t tokens, absl::Time now);
  // A request that Begin counted is over; it had so many tokens more (or less: negative) than Begin was told. A tenant
  // that owes tokens is refused until they are worked off, at the rate of its quota: so one request may go beyond it,
  // the next may not.
  void End(const Tenant& tenant, const std::string& session, int64_t tokens, absl::Time now);

  void CheckInvariants() const;

 private:
  struct Use {
    int32_t requests = 0;
    absl::flat_hash_map<std::string, int32_t> sessions;  // live requests of each; never 0
    double tokens = 0;                                   // used and not worked off, at `at`
    absl::Time at = absl::InfinitePast();
  };
  std::optional<Refusal> CheckRequests(const Tenant& tenant);
  std::optional<Refusal> CheckTokens(const Tenant& tenant, absl::Time now);
  static void WorkOff(Use& use, int64_t tokens_per_minute, absl::Time now);

  absl::flat_hash_map<std::string, Use> uses_;  // by tenant; the file of keys bounds them
};

}  // namespace baton
