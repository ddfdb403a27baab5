// What a tenant may have of a router beside others, and whose turn it is.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "request/request_spec.h"

namespace baton {

// Counts live requests of tenants with keys. Background requests do not count: no client waits for
// them, and they have limits of their own.
class TenantShares {
 public:
  explicit TenantShares(int32_t live_requests) : limit_(live_requests) {}

  static bool Counts(const RequestSpec& spec);

  // A tenant may have as many requests as are then left free, so a new tenant finds as much room
  // as any other has. RESOURCE_EXHAUSTED: it has them. `live`: requests of all tenants.
  absl::Status Check(const RequestSpec& spec, int32_t live) const;
  void Begin(const RequestSpec& spec);
  void End(const RequestSpec& spec);  // REQUIRES: Begin

  // Turns go to the tenant whose last turn is the oldest. 0: it has had none.
  int64_t LastTurn(const std::string& tenant) const;
  void NoteTurn(const std::string& tenant);  // does nothing for a tenant without live requests

  int32_t live(const std::string& tenant) const;
  size_t tenants() const { return uses_.size(); }

 private:
  struct Use {
    int32_t live = 0;  // never 0
    int64_t last_turn = 0;
  };

  const int32_t limit_;  // of live requests of all tenants
  absl::flat_hash_map<std::string, Use> uses_;
  int64_t turns_ = 0;
};

}  // namespace baton
