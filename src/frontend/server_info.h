// The answer to GetServerInfo: workers, load and sessions of a router.
#pragma once

#include "frontend/callers.h"
#include "inference.pb.h"
#include "shell/router.h"

namespace baton {

// Contains no cache salt, because a salt may be a secret.
v1::GetServerInfoResponse ServerInfo(const Router& router, const Callers& callers);

}  // namespace baton
