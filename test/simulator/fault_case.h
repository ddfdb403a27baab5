// Random cases for a simulated cluster with faults.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <vector>

#include "absl/time/time.h"
#include "simulator/cluster.h"
#include "simulator/history.h"

namespace baton {

// A cluster, requests and faults. Times count from the start of the run.
struct FaultCase {
  struct Submission {
    absl::Duration at;
    SimulatedRequest request;
    std::optional<absl::Duration> cancel_at{};
  };
  struct TimedFault {
    absl::Duration at;
    Fault fault;
  };
  ClusterShape shape{};
  std::vector<Submission> submissions{};
  std::vector<TimedFault> faults{};
};

// Draws a case. Equal seeds give equal cases. Without faults, all requests end with OK.
FaultCase DrawFaultCase(uint64_t seed);

// Runs a case to its end, and until all leases have ended. If it is not disturbed, it has no faults
// and no cancellations. Writes the trace to `trace`, unless that is null.
History Play(const FaultCase& drawn, bool disturbed, std::ostream* trace);

}  // namespace baton
