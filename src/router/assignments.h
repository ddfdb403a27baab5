// The assignment of this router's requests to workers, with the prompt tokens that each prefill
// worker still has to compute.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "router/request.h"
#include "router/worker_registry.h"

namespace baton {

// Updates both sides together: Placement names a request's workers, and AttachedWorker counts its
// requests.
class Assignments {
 public:
  // `workers` must outlive this.
  explicit Assignments(WorkerRegistry& workers) : workers_(workers) {}

  // REQUIRES: the request has no prefill worker.
  void ToPrefill(Request& request, const AttachedWorker& worker);
  // REQUIRES: the request has no decode worker.
  void ToDecode(Request& request, const AttachedWorker& worker);
  // Sets the decode worker where a streaming prompt will probably decode. Null removes it.
  void Expect(Request& request, const AttachedWorker* decode);
  // Updates the counts after the prompt's number of tokens has changed.
  void NotePromptTokens(Request& request);

  // End an assignment. Do nothing if there is none.
  void LeavePrefill(Request& request);
  void LeaveDecode(Request& request);
  // Ends all assignments to a worker. Returns its requests, ordered by id.
  std::vector<Request*> LeaveWorker(const AttachedWorker& worker);

  // `live`: all requests that may be assigned.
  void CheckInvariants(const absl::flat_hash_set<Request*>& live) const;

 private:
  WorkerRegistry& workers_;
};

}  // namespace baton
