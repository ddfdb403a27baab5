// Hedged requests: prompts that two prefill workers compute, because the first one is avoided.
#pragma once

#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "router/assignments.h"
#include "router/request.h"
#include "router/router_action.h"
#include "router/worker_registry.h"

namespace baton {

// Maintains Placement::former, the job at the avoided worker. The other fields of the placement are
// those of the hedge, the job at another worker. The first commit wins.
//
// A former job has no assignment: its worker gets no new requests while it is avoided, and reports
// its own load after that. Not thread-safe.
class Hedges {
 public:
  // All must outlive this. Actions are appended to `actions`.
  Hedges(WorkerRegistry& registry, Assignments& assignments, std::vector<RouterAction>& actions)
      : registry_(registry), assignments_(assignments), actions_(actions) {}

  // Makes the present job a former job. The caller then places the request, as a hedge. REQUIRES:
  // the request is in kPrefilling and has no former job.
  void Begin(Request& request);
  // Cancels a former job. Does nothing if there is none.
  void Drop(Request& request);
  // Drops all former jobs at a lost worker. `left`: it announced its shutdown. Otherwise counts the
  // loss for requests that a step of the worker had, and returns these. REQUIRES: the registry does
  // not have the worker.
  std::vector<Request*> DropAt(const WorkerAddress& lost, bool left);
  // Returns the number of former jobs at a worker.
  int64_t JobsAt(const WorkerAddress& worker) const;
  // Makes a former job the request's only job. A hedge that was refused does not count as a move,
  // nor its refusal as the beginning of a wait. REQUIRES: there is a former job, and the request
  // has left the workers of the hedge.
  void Keep(Request& request, bool refused);
  // `live`: all requests that may be hedged.
  void CheckInvariants(const absl::flat_hash_set<Request*>& live) const;

 private:
  WorkerRegistry& registry_;
  Assignments& assignments_;
  std::vector<RouterAction>& actions_;
  absl::btree_set<Request*, Request::ById> hedged_;
};

}  // namespace baton
