// What a router tells its operators of itself.
#pragma once

#include "frontend/callers.h"
#include "inference.pb.h"
#include "shell/router.h"

namespace baton {

// No cache salt is told: it may be a secret.
v1::GetServerInfoResponse ServerInfo(const Router& router, const Callers& callers);

}  // namespace baton
