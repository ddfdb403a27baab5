// The fair order of tenants in prefill steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"

namespace baton {

// Start-time fair queueing of tenants (Goyal, Vin and Cheng, 1996). Each tenant has a virtual time
// in tokens, which grows by the tokens that steps compute for the tenant. The tenant with the least
// virtual time comes first, so tenants that always wait receive equally many tokens in the long
// run.
//
// The current virtual time is the least one among the tenants of the latest step, before that step
// was charged. A returning tenant starts at the current virtual time, so an idle tenant saves up
// nothing.
//
// Not thread-safe.
class FairQueue {
 public:
  struct Candidate {
    std::string tenant;
    uint64_t since = 0;  // among tenants of equal virtual time, the least comes first
    // True if the tenant has a queued closed prompt. If false, it has only streaming prompts, and
    // its virtual time counts as at least the current one.
    bool waits = true;
  };
  // Returns the candidates in the order in which the step that is being planned serves them.
  // REQUIRES: no two candidates have the same tenant.
  std::vector<Candidate> Order(std::vector<Candidate> candidates);
  // Charges tenants for the tokens that the step planned last computes for them.
  void Charge(const absl::btree_map<std::string, int64_t>& tokens);
  // Returns the tenant's virtual time.
  int64_t TimeOf(const std::string& tenant) const;

 private:
  struct Line {
    int64_t time = 0;
    bool waits = false;  // as of the last Order
  };
  // Tenants that wait, or whose virtual time is past now_.
  absl::btree_map<std::string, Line> lines_;
  int64_t now_ = 0;  // the current virtual time
};

}  // namespace baton
