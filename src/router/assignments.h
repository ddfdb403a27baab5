// Which requests of this router are at which worker, and how many prompt tokens a worker still has
// to compute for them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "router/request.h"
#include "router/worker_registry.h"

namespace baton {

// Keeps both sides equal: Placement names a request's workers, and AttachedWorker counts its
// requests.
class Assignments {
 public:
  explicit Assignments(WorkerRegistry& workers) : workers_(workers) {}  // which outlives this

  void ToPrefill(Request& request, const AttachedWorker& worker);  // REQUIRES: at none
  void ToDecode(Request& request, const AttachedWorker& worker);   // REQUIRES: at none
  // A streaming prompt will probably decode there. Null: nowhere.
  void Expect(Request& request, const AttachedWorker* decode);
  // The prompt's number of tokens has changed, so its prefill worker has more or less to compute.
  void NotePromptTokens(Request& request);

  // The worker is done with the request. Harmless if it is at none.
  void LeavePrefill(Request& request);
  void LeaveDecode(Request& request);
  // Takes everything from a worker. Returns the requests that it had, by id.
  std::vector<Request*> LeaveWorker(const AttachedWorker& worker);

  // `live`: all requests that may be at workers.
  void CheckInvariants(const absl::flat_hash_set<Request*>& live) const;

 private:
  WorkerRegistry& workers_;
};

}  // namespace baton
