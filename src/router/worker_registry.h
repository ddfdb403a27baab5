// The registry of workers that are attached to a router, and of workers that shut down and may
// return.
#pragma once

#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/placement.h"
#include "router/request.h"
#include "router/worker_state.h"
#include "router/worker_watch.h"

namespace baton {

class WorkerRegistry {
 public:
  // By configured address. The map is ordered so that runs repeat.
  using Workers = absl::btree_map<WorkerAddress, AttachedWorker>;
  using Candidates = std::vector<const AttachedWorker*>;

  // `restart_wait`: how long the router awaits a worker that shut down before it left.
  explicit WorkerRegistry(absl::Duration restart_wait) : restart_wait_(restart_wait) {}

  // Returns FAILED_PRECONDITION for a decode worker whose weights or module digest differ from
  // those of the workers that serve its model. It may attach once these workers have left or
  // shut down. All workers of one model name therefore answer with the same weights.
  absl::Status MayAttach(const WorkerInfo& info) const;
  // `link` is the worker's configured address. REQUIRES: MayAttach is OK, and the address is not
  // attached.
  void Attach(const WorkerAddress& link, const WorkerInfo& info);
  // REQUIRES: the worker is attached, and no request is assigned to it or expected on it.
  void Remove(const WorkerAddress& link, absl::Time now);

  const Workers& workers() const { return workers_; }
  AttachedWorker* Find(const WorkerAddress& link);  // null: not attached
  // Returns the decode worker with this incarnation. Null: it is not attached.
  const AttachedWorker* FindDecode(Incarnation incarnation) const;
  AttachedWorker& At(const WorkerAddress& link) { return workers_.at(link); }
  // Sets the health of a worker. REQUIRES: the worker is attached.
  void SetHealth(const WorkerWatch::Change& change, absl::Time now);
  // Returns the requests of hung workers, and those of other avoided workers if workers of the same
  // role are attached that the router does not avoid.
  absl::btree_set<Request*, Request::ById> RequestsToMove() const;
  // Returns the workers with held room (AttachedWorker::held_room) that requests may ask now.
  std::vector<WorkerAddress> HoldersOfRoom() const;
  // Returns whether requests may ask the worker for room: it is not drained, and it serves, or no
  // worker that could take its place does.
  bool MayBeAsked(const AttachedWorker& worker) const;
  // Sets whether an operator has drained the worker. This lasts until the next call, also if the
  // worker leaves and attaches again.
  void SetDrained(const WorkerAddress& link, bool drained);
  // Returns whether the worker is attached and shuts down.
  bool IsDraining(const WorkerAddress& link) const;

  // Return workers that could serve a request, with or without room now. Drained workers could not.
  // `decodes` are the workers that could decode the request.
  Candidates Decodes(const std::string& model) const;
  Candidates Prefills(const std::string& model, bool prefill_only, const Candidates& decodes) const;
  // Returns OK if workers for this model are attached, with or without room. Returns UNAVAILABLE
  // if a worker is missing; the message names its role.
  absl::Status Readiness(const std::string& model, bool prefill_only) const;
  // Returns UNAVAILABLE instead of RESOURCE_EXHAUSTED if the request was refused by a decode worker
  // that lacks room because of blocks in quarantine. Returns other statuses as they are.
  absl::Status BlameQuarantine(const Placement& placement, const absl::Status& refusal) const;
  // Returns INTERNAL if the worker that serves the request hangs in a step with it. Returns OK
  // otherwise.
  absl::Status BlameHang(const Placement& placement) const;
  // Returns until when a request for the model waits for workers that restart. InfinitePast if no
  // awaited worker would help.
  absl::Time AwaitedUntil(const std::string& model, bool prefill_only) const;
  // Returns whether a decode worker for the model that can hold `tokens` tokens is away and may
  // return: it is drained, or awaited after it shut down.
  bool MayReturn(const std::string& model, int64_t tokens, absl::Time now) const;
  // Returns the models of attached decode workers, each with the model of a prefill worker whose KV
  // it can read.
  struct Decoder {
    std::string model, module;
  };
  std::vector<Decoder> Decoders() const;
  void CheckInvariants() const;

 private:
  struct Restarting {
    WorkerInfo info;
    absl::Time until;
  };

  const absl::Duration restart_wait_;
  Workers workers_;
  absl::btree_map<WorkerAddress, Restarting> restarting_;  // workers that shut down and left
  absl::btree_set<WorkerAddress> drained_;                 // attached or not
};

}  // namespace baton
