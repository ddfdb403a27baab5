// Shadow prefill (design section 5). While a request of a session decodes, the prefill module
// computes KV of the generated tokens. If the shadow prefill has run and its blocks are not
// evicted, the session's next turn computes only its new tokens and at most one partial block, with
// any decoder.
//
// The router does this with an internal low-priority request that no client sees. Its streaming
// prompt begins with the tokens of the request, and grows by whole blocks of generated tokens.
#pragma once

#include "router/request.h"

namespace baton {

// Longest time from the end of a request to the end of its shadow prefill and of its prefill hints.
// After that time the session's next turn has come, or KV is no longer worth computing in advance.
inline constexpr absl::Duration kShadowWait = absl::Seconds(10);

// Returns the shadow prefill of a request that has generated a block. Takes the tokens of
// request.unshadowed.
ClientRequest ShadowOf(Request& request);
// Returns a ScopedId that no client can choose and that no other request has, even one with the
// same client name.
RequestId ShadowId(const Request& request);

}  // namespace baton
