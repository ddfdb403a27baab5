// Shadow prefill (design section 5): while a request of a session decodes, the prefill module computes KV of what it
// generates, so that the session's next turn has only its own words to prefill, whichever decoder that goes to.
//
// It is done by a request of the router's own that nobody hears of: an open prompt that begins with the request's and
// grows with its tokens, a block at a time, after everything that clients wait for.
#pragma once

#include "router/request.h"

namespace baton {

// From a request's end to that of its shadow, and of its followers. Where that takes longer, the session's next turn
// has come meanwhile, or its KV has been evicted.
inline constexpr absl::Duration kShadowWait = absl::Seconds(10);

// Of a request that has generated a block; its tokens so far are taken from request.unshadowed.
ClientRequest ShadowOf(Request& request);
// Of all full blocks of a prompt that has grown; `first`: of those that it began with.
std::vector<BlockKey> GrownKeys(const Request& request, std::vector<BlockKey> first);
// Scoped; as no client may name a request, nor a later request of this one's id its own.
RequestId ShadowId(const Request& request);

}  // namespace baton
