// Prefill hints. Frameworks submit an agent's prompt only when it is complete, but a client can
// state with a call which prompts it expects to submit next. Baton prefills these prompts while the
// call decodes. If a prefill hint has run and its blocks are not evicted, a call that begins with
// it computes only the tokens after the hint's last full block.
//
// The router does this with internal low-priority requests that no client sees. Each has a
// streaming prompt with a reference to the call's output. If the call fails, its prefill hints
// fail. A prefill hint does not wait for a worker: it ends if no worker can take it at once.
#pragma once

#include <cstdint>

#include "router/request.h"

namespace baton {

// Upper bound on a tenant's live prefill hints. Each may occupy the router and a worker until ten
// seconds after its call.
inline constexpr int32_t kMaxPrefillHintsPerTenant = 64;

// Returns the request of a prefill hint. `prompt` was read like a client's prompt. REQUIRES: all
// references of `prompt` are to the call's output, and no other request has `number`.
ClientRequest PrefillHintOf(const Request& call, ClientRequest prompt, uint64_t number);

}  // namespace baton
