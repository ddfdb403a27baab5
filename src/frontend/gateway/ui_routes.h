// The page at /ui (frontend/ui/page.html) and what it shows.
#pragma once

#include "frontend/gateway/parts.h"

namespace baton {

// Holds nothing of anybody's: what it shows it asks for, with its reader's key.
void ServeUiPage(const GatewayParts& parts, const SharedCall& call);
// What `baton status` shows, a GetServerInfoResponse.
void ServeUiStatus(const GatewayParts& parts, const SharedCall& call);
// {"cache_salt": "..."}, which may be left out -> the latest workflows of the caller's requests with this salt.
void ServeUiWorkflows(const GatewayParts& parts, const SharedCall& call);
// A TraceRequest -> a TraceResponse.
void ServeUiTrace(const GatewayParts& parts, const SharedCall& call);

}  // namespace baton
