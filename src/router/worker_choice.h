// The choice among the workers that a request may go to now. These serve its model, are large
// enough, are in the best health among those, and have not refused it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/placement.h"
#include "router/request.h"
#include "router/router_action.h"
#include "router/worker_registry.h"

namespace baton {

class WorkerChoice {
 public:
  using Candidates = WorkerRegistry::Candidates;

  // `workers` must outlive this.
  WorkerChoice(const WorkerRegistry& workers, const PlacementOptions& options) : workers_(workers), options_(options) {}

  // Returns OK if workers for the request are attached, with or without room. Returns UNAVAILABLE
  // if one is missing.
  absl::Status Readiness(const Request& request) const;
  struct Workers {
    // Null for a request that scores its prompt.
    const AttachedWorker* prefill = nullptr;
    // Null for a prefill-only request. May be null for a streaming prompt.
    const AttachedWorker* decode = nullptr;

    // If false, no workers can take the request now.
    bool found() const { return prefill != nullptr || decode != nullptr; }
    // Returns the state of the request at these workers, and the action that sends it there.
    // REQUIRES: found().
    Placement::State StateOf(const Request& request) const;
    RouterAction ActionFor(Request& request, bool hedge) const;

    // Returns whether the prefill worker can hand off KV of a prompt together with its output, of
    // `tokens` tokens in all. Otherwise the decode worker replays the output.
    bool CanHandOff(int64_t tokens) const;
  };
  // Chooses no workers for a request whose max_tokens no worker can ever hold.
  Workers Choose(const Request& request) const;
  // Returns INVALID_ARGUMENT for such a request, unless a worker that could hold it may return.
  absl::Status CheckMaxTokens(const Request& request, absl::Time now) const;
  // Chooses the workers of a request that leaves an avoided worker. None of them is avoided. A
  // stream of a drained worker stays there until another worker has room.
  Workers ChooseToMove(const Request& request) const;
  // Returns whether a larger worker than the request's decode worker is attached, and `last` ends
  // the output only because the present worker cannot hold another token.
  bool Outgrows(const Request& request, const TokenUpdate& last) const;
  // Chooses the decode worker for KV of this prefill worker, with or without a refusal. Null if
  // none can use the KV, or can ever hold the client's max_tokens.
  const AttachedWorker* DecodeFor(const Request& request, const AttachedWorker& prefill) const;

 private:
  Workers ChooseToScore(const Request& request) const;
  // Returns the decode workers for the request's model, and for its output if it has any.
  Candidates DecodesFor(const Request& request) const;
  // Returns those that the request can reach: a prefill worker computes KV for them, unless the
  // request scores its prompt.
  Candidates ReachableDecodes(const Request& request) const;
  const AttachedWorker* DecodeFor(const Request& request, const AttachedWorker& prefill, Candidates decodes) const;

  const WorkerRegistry& workers_;
  const PlacementOptions options_;
};

// Returns how many tokens of the prompt the prefill worker with most of them cached would have to
// compute. REQUIRES: the request has a route.
int64_t FewestUncached(const WorkerRegistry& workers, const Request& request);

}  // namespace baton
