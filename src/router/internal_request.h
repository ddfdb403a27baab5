// Internal requests: low-priority requests of the router that no client sees. They compute KV that
// a later request probably needs, and generate nothing.
//
// - A shadow prefill (design section 5) computes KV of a session's output while the request
//   decodes. Its streaming prompt begins with the tokens of the request, and grows by whole blocks
//   of generated tokens. If it has run and its blocks are not evicted, the session's next turn
//   computes only its new tokens and at most one partial block, with any decoder.
// - A prefill hint is a prompt that a client expects to submit after a call. Frameworks submit an
//   agent's prompt only when it is complete. Its streaming prompt has a reference to the call's
//   output. If it has run and its blocks are not evicted, a call that begins with it computes only
//   the tokens after its last full block. If the call fails, its prefill hints fail. A prefill hint
//   does not wait for a worker: it ends if no worker can take it at once.
#pragma once

#include <cstdint>

#include "router/request.h"

namespace baton {

// Longest time from the end of a request to the end of its shadow prefill and of its prefill hints.
// After that time the session's next turn has come, or KV is no longer worth computing in advance.
inline constexpr absl::Duration kShadowWait = absl::Seconds(10);
// Upper bound on a tenant's live prefill hints. Each may occupy the router and a worker until
// kShadowWait after its call.
inline constexpr int32_t kMaxPrefillHintsPerTenant = 64;

// Returns the shadow prefill of a request that has generated a block. Takes the tokens of
// request.unshadowed.
ClientRequest ShadowOf(Request& request);
// Returns a ScopedId that no client can choose and that no other request has, even one with the
// same client name.
RequestId ShadowId(const Request& request);

// Returns the request of a prefill hint. `prompt` was read like a client's prompt. REQUIRES: all
// references of `prompt` are to the call's output, and no other request has `number`.
ClientRequest PrefillHintOf(const Request& call, ClientRequest prompt, uint64_t number);

}  // namespace baton
