// The routes that make requests of the router.
#pragma once

#include "frontend/gateway/parts.h"

namespace baton {

// Each function answers the call, at once or later. Long bodies and prompts are read on a thread of
// ClientAdmission.
void ServeCompletion(const GatewayParts& parts, const SharedCall& call);
void ServeChat(const GatewayParts& parts, const SharedCall& call);
// The JSON forms of Generate and PrefillOnly of baton.v1.Inference. /generate?stream=true answers
// with events. ?timeout_ms=N sets the deadline of either call.
void ServeGenerate(const GatewayParts& parts, const SharedCall& call);
void ServePrefillOnly(const GatewayParts& parts, const SharedCall& call);

}  // namespace baton
