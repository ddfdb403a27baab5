// The fair order of tenants in prefill steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "request/virtual_times.h"

namespace baton {

// Orders tenants by their virtual times (VirtualTimes), which grow by the tokens that steps compute
// for them.
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
  void Charge(const absl::btree_map<std::string, int64_t>& tokens) { times_.Charge(tokens); }
  // Returns the tenant's virtual time.
  int64_t TimeOf(const std::string& tenant) const { return times_.TimeOf(tenant); }

 private:
  VirtualTimes times_;
  absl::btree_set<std::string> waiting_;  // as of the last Order
};

}  // namespace baton
