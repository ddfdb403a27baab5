// The page at /ui (frontend/ui/page.html), and the data that it shows.
#pragma once

#include "frontend/gateway/parts.h"

namespace baton {

// The page itself contains no data. Its script requests the data with the reader's key.
void ServeUiPage(const GatewayParts& parts, const SharedCall& call);
// A GetServerInfoResponse, which `baton status` shows too.
void ServeUiStatus(const GatewayParts& parts, const SharedCall& call);
// {"cache_salt": "..."}, which may be left out -> the latest workflows of the caller's requests
// with this salt.
void ServeUiWorkflows(const GatewayParts& parts, const SharedCall& call);
// A TraceRequest -> a TraceResponse.
void ServeUiTrace(const GatewayParts& parts, const SharedCall& call);

}  // namespace baton
