// The routes that make requests of the router.
#pragma once

#include "frontend/gateway/parts.h"

namespace baton {

// Each answers the call, at once or later. Bodies and prompts that are long are read on a thread of the admission's.
void ServeCompletion(const GatewayParts& parts, const SharedCall& call);
void ServeChat(const GatewayParts& parts, const SharedCall& call);
// The JSON forms of baton.v1.Inference's Generate and PrefillOnly. /generate?stream=true answers with events;
// ?timeout_ms=N is either's deadline.
void ServeGenerate(const GatewayParts& parts, const SharedCall& call);
void ServePrefillOnly(const GatewayParts& parts, const SharedCall& call);

}  // namespace baton
