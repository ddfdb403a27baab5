// Tenants' shares of a router's request slots.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "request/request_spec.h"

namespace baton {

// Counts live requests of tenants with API keys. Low-priority requests do not count: no client
// waits for them, and they have their own limits.
class TenantShares {
 public:
  explicit TenantShares(int32_t live_requests) : limit_(live_requests) {}

  static bool Counts(const RequestSpec& spec);

  // Returns RESOURCE_EXHAUSTED if no slot is free, or if the tenant has more live requests than
  // slots are free. A tenant thus gets at most half of the slots and one more. `live` is the number
  // of live requests of all tenants.
  absl::Status Check(const RequestSpec& spec, int32_t live) const;
  void Begin(const RequestSpec& spec);
  void End(const RequestSpec& spec);  // REQUIRES: Begin was called for the request

  int32_t live(const std::string& tenant) const;
  // `tenants` has the tenant of each live request that counts.
  void CheckInvariants(std::span<const std::string> tenants) const;

 private:
  // Upper bound on live requests of all tenants.
  const int32_t limit_;
  absl::flat_hash_map<std::string, int32_t> live_;  // live requests, by tenant; never 0
};

}  // namespace baton
