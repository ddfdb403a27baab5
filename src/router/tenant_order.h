// The order in which a router lets tenants ask for room.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "request/virtual_times.h"
#include "router/request.h"

namespace baton {

// Orders tenants by virtual time in tokens (VirtualTimes). A hand-off is charged with its prompt
// and the expected length of its output. The difference to the true length is charged or refunded
// when the request ends. Tenants
// that always wait thus receive equally many tokens of prompts and outputs in the long run.
//
// Without API keys, all requests belong to one tenant.
//
// Not thread-safe.
class TenantOrder {
 public:
  // Record that a request enters or leaves the waiting queue.
  void BeginWait(const Request& request);
  void EndWait(const Request& request);
  // Records that a waiting request asks a worker, which may refuse it again. Does nothing while no
  // request of another tenant waits.
  void Asked(Request& request);
  // Records the request's hand-off to a decode worker. Only the first one of a request counts.
  void Granted(Request& request);
  // REQUIRES: called once for each request, when it ends.
  void Ended(Request& request);

  // Returns the virtual time of the tenant. Decides for which tenant room is kept next.
  int64_t TimeOf(const Request& request) const { return times_.TimeOf(request.asked.spec.tenant); }
  // The same, plus the tokens for which the tenant's live requests have asked without a hand-off.
  // Decides which tenant uses a report of room. A tenant whose first request needs more room than
  // was reported thus lets others ask.
  int64_t AskTimeOf(const Request& request) const;
  // Returns the tokens of a prompt and of the expected output.
  static int64_t TokensOf(const Request& request);
  // `live`: all requests that have not ended.
  void CheckInvariants(const absl::flat_hash_set<Request*>& live) const;

 private:
  using Counts = absl::flat_hash_map<std::string, int64_t>;  // by tenant; never 0

  void ForgetAsked(Request& request);

  VirtualTimes times_;
  Counts asked_;    // sums of Placement::asked_tokens
  Counts waiting_;  // waiting requests
};

}  // namespace baton
