// The use of contexts (ContextStore) by client requests.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/context_store.h"
#include "request/jobs.h"
#include "router/client_request.h"

namespace baton {

// Puts the context's tokens before those of the request, unless it is a chat, and checks the total
// length. After an error the caller does not call EndContext. Errors:
// - those of ContextStore
// - INVALID_ARGUMENT: the whole prompt is empty or too long.
// - FAILED_PRECONDITION: a chat does not begin with the context's tokens, as far as its tokens are
//   known.
absl::Status BeginContext(ContextStore& contexts, ClientRequest& request, absl::Time now);
// Passes the request's complete prompt to the context. Returns FAILED_PRECONDITION if a chat does
// not begin with the context's tokens. Does nothing for a request without a context.
absl::Status CompleteContext(ContextStore& contexts, ClientRequest& request);
// Ends the request's use of its context, also for a request that was not accepted. `holder` is the
// prefill worker that prefilled the prompt. It is empty if the request failed. Does nothing for a
// request without a context.
void EndContext(ContextStore& contexts, const ClientRequest& request, const WorkerAddress& holder, absl::Time now);

// Returns the lease for the KV of the request's context at its prefill worker.
KvLease LeaseOf(const ContextStore& contexts, const ClientRequest& request);

// How long a prefill worker protects a session's KV after the prefill of a turn, and after its
// shadow prefill. Tool calls are seldom longer. Within this time prefill computes KV for about a
// quarter of KV memory. One-off prompts that name a session therefore cannot take most of it. The
// quarter assumes that prefill fills KV memory in about 36 s, as SessionLimits::longest_linger
// does. A faster device or a smaller memory needs a shorter time.
inline constexpr absl::Duration kSessionProtection = absl::Seconds(10);
// Returns the lease of the request's context for its prefill worker, or else the protection of the
// request's session.
KvLease PrefillLease(const ContextStore& contexts, const ClientRequest& request);

}  // namespace baton
