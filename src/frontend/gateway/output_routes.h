// The route by which clients write outputs.
#pragma once

#include "frontend/gateway/parts.h"

namespace baton {

// POST /v1/outputs/ID: a whole value (Values), as baton.v1.Inference.PutOutput. Long bodies are
// read on a thread of ClientAdmission.
void ServePutOutput(const GatewayParts& parts, const SharedCall& call);

}  // namespace baton
