// Streaming prefill for clients that ask an agent only when its prompt is complete, as frameworks do, but can say which
// prompts will follow a call: they are prefilled while it decodes, so that the next call finds all but its last tokens.
//
// A follower is a request of the router's own that nobody hears of: a growing prompt with the call's output in it,
// after everything that clients wait for. It fails with its call, and where there is no room at once there is none.
#pragma once

#include <cstdint>

#include "router/request.h"

namespace baton {

// Of one tenant at a time: each holds a place at router and worker until ten seconds after its call.
inline constexpr int32_t kFollowersOfTenant = 64;

// `prompt`: read as a client's, with references to the call's output and no others. `number`: no other request's.
ClientRequest FollowerOf(const Request& call, ClientRequest prompt, uint64_t number);

}  // namespace baton
