// The workers that are attached to a router, and those that drained and may come back.
#pragma once

#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/placement.h"
#include "router/worker_state.h"

namespace baton {

class WorkerRegistry {
 public:
  // By link, and ordered, so that runs repeat.
  using Workers = absl::btree_map<WorkerAddress, AttachedWorker>;
  using Candidates = std::vector<const AttachedWorker*>;

  // `restart_wait`: how long a worker that drained before it left may take to come back.
  explicit WorkerRegistry(absl::Duration restart_wait) : restart_wait_(restart_wait) {}

  // FAILED_PRECONDITION: a decode worker whose weights or prefill module differ from those of the
  // workers that serve its model. It may attach when these have gone, or shut down. The reason is
  // that a client which names a model does not mean either of two.
  absl::Status MayAttach(const WorkerInfo& info) const;
  // `link` is the address as configured. REQUIRES: MayAttach; the link is not attached.
  void Attach(const WorkerAddress& link, const WorkerInfo& info);
  // REQUIRES: attached, and no request is there or expected there.
  void Remove(const WorkerAddress& link, absl::Time now);

  const Workers& workers() const { return workers_; }
  AttachedWorker* Find(const WorkerAddress& link);  // null: not attached
  AttachedWorker& At(const WorkerAddress& link) { return workers_.at(link); }
  bool IsDraining(const WorkerAddress& link) const;  // attached, and shuts down

  // Workers that could serve a request, full or not. `decodes`: those that could decode it.
  Candidates Decodes(const std::string& model) const;
  Candidates Prefills(const std::string& model, bool prefill_only, const Candidates& decodes) const;
  // OK if a request for this model finds workers, full or not; else UNAVAILABLE, which names what
  // is missing.
  absl::Status Readiness(const std::string& model, bool prefill_only) const;
  // Until when a request for the model waits for workers that restart. InfinitePast: for none.
  absl::Time AwaitedUntil(const std::string& model, bool prefill_only) const;
  // Models of attached decode workers, each with the model of a prefill worker whose KV it reads.
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
  absl::btree_map<WorkerAddress, Restarting> restarting_;  // drained and gone, and may be awaited
};

}  // namespace baton
