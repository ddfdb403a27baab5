// The history of a simulated run, and the checker that judges it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "router/session_gate.h"
#include "simulator/cluster.h"

namespace baton {

// A request, as its client sent it, and the answer that the client received.
struct ClientHistory {
  std::vector<RequestId> upstreams{};  // requests whose outputs its prompt has
  bool cancelled = false;              // the client sent a cancellation
  absl::Time submitted{};
  int ends = 0;
  bool late_tokens = false;  // tokens arrived after an end
  absl::Time ended = absl::InfiniteFuture();
  absl::Status status{};
  std::vector<TokenId> tokens{};
};

struct History {
  std::map<RequestId, ClientHistory> requests{};
  // The time of the first fault, and the end of the last one.
  absl::Time disturbed_from = absl::InfiniteFuture();
  absl::Time quiet_from = absl::InfinitePast();
  // The number of streams between the router and workers that broke.
  int breaks = 0;
  // The cluster at the end, after all leases.
  SimulatedCluster::Holdings held{};
  SessionGate::Counts sessions{};
};

// Returns how long a request ran on after its submission, the end of its upstream requests, and the
// end of the last fault. Zero if it ended before the latest of these.
absl::Duration WaitAfterFaults(const ClientHistory& seen, const History& run);
// Upper bound on WaitAfterFaults.
absl::Duration WaitBound();

// Returns a sentence for each violation of these rules; none if the run is right:
//
// - Each request ends exactly once, and nothing follows its end.
// - The output of a request that ended with OK equals that of the undisturbed run. The output of
//   any other request is a prefix of it.
// - A request that ended otherwise has a reason: a cancellation, an upstream request that failed,
//   or a fault.
// - A request ends within its bound.
// - All blocks and places are free at the end.
//
// `undisturbed` has the same requests, without faults and cancellations.
std::vector<std::string> Violations(const History& run, const History& undisturbed);

}  // namespace baton
