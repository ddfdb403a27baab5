// The virtual times of tenants, in tokens.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/btree_map.h"

namespace baton {

// Start-time fair queueing of tenants (Goyal, Vin and Cheng, 1996). Each tenant has a virtual time,
// which grows by the tokens that it is served. The tenant with the least virtual time is served
// next, so tenants that always wait receive equally many tokens in the long run.
//
// The current virtual time is the least one among the tenants that were served last, before they
// were charged. A returning tenant starts at the current virtual time, so an idle tenant saves up
// nothing.
//
// Not thread-safe.
class VirtualTimes {
 public:
  // Record that a tenant begins to wait, or does not wait any longer. Repeated calls do nothing.
  void BeginWait(const std::string& tenant);
  void EndWait(const std::string& tenant);
  // Charges tenants for tokens that they are served together. The least virtual time among them
  // becomes the current one. Tenants that wait and are not served do not count, since a returning
  // tenant must not start as far back as they are.
  void Charge(const absl::btree_map<std::string, int64_t>& tokens);
  // Corrects a charge of `charged` tokens, because the tenant was served `used` tokens. Does not
  // change the current virtual time.
  void Settle(const std::string& tenant, int64_t charged, int64_t used);
  // Returns the tenant's virtual time, which is at least the current one unless the tenant waits.
  int64_t TimeOf(const std::string& tenant) const;

 private:
  struct Line {
    int64_t time = 0;
    bool waits = false;
  };

  // Tenants that wait, or whose virtual time is past now_.
  absl::btree_map<std::string, Line> lines_;
  int64_t now_ = 0;  // the current virtual time
};

}  // namespace baton
