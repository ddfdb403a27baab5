// What a client's request does to the context that it names.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/context_store.h"
#include "request/jobs.h"
#include "router/client_request.h"

namespace baton {

// Puts the context's tokens before those of the request, and checks again what depends on their number. Errors are
// those of ContextStore and of the edge; then there is nothing to end.
absl::Status BeginContext(ContextStore& contexts, ClientRequest& request, absl::Time now);
// The request's prompt is complete.
absl::Status CompleteContext(ContextStore& contexts, const ClientRequest& request);
// The request is over, or was not accepted. `holder`: the prefill worker that computed its prompt; empty: it failed.
// Harmless for one without a context, as is CompleteContext.
void EndContext(ContextStore& contexts, const ClientRequest& request, const WorkerAddress& holder, absl::Time now);

// How much of its context's KV stays with its prefill worker.
KvLease LeaseOf(const ContextStore& contexts, const ClientRequest& request);

// From the end of a session's turn, and of its shadow: tools seldom take longer. In this time one-off prompts cannot
// take most of KV memory by naming sessions, for prefill computes a quarter of it (where session_gate.h's
// longest_linger fits; a faster device, or less memory, wants less).
inline constexpr absl::Duration kSessionLease = absl::Seconds(10);
// What the prefill worker keeps: the context's KV, else the session's.
KvLease PrefillLease(const ContextStore& contexts, const ClientRequest& request);

}  // namespace baton
