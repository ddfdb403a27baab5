// The relation of sessions to the graph of requests and to the workers, for the session gate.
#pragma once

#include <span>

#include "absl/time/time.h"
#include "router/session_gate.h"
#include "router/worker_registry.h"

namespace baton {

struct Request;

// Returns whether an admitted request depends on this one, directly or through requests without a
// session.
bool IsNeeded(const Request& request);
// Admits the sessions of the requests that an admitted request depends on. The admitted request's
// session has a slot, so its upstream sessions must not wait for slots.
void AdmitUpstreams(SessionGate& gate, const Request& request, absl::Time now);
// Returns the prefill that request.done describes. `keys` are those of the prompt's full blocks, as
// far as the router has them, and must outlive the result.
SessionGate::Prefill PrefillOf(const Request& request, std::span<const BlockKey> keys);
// Returns the KV memory of all prefill workers.
SessionGate::Capacity KvCapacity(const WorkerRegistry& registry);

}  // namespace baton
