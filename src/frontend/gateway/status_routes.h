// The routes that tell of models, tokens and the router itself.
#pragma once

#include "frontend/gateway/parts.h"

namespace baton {

void ServeModels(const GatewayParts& parts, const SharedCall& call);
void ServeModel(const GatewayParts& parts, const SharedCall& call);
void ServeTokenize(const GatewayParts& parts, const SharedCall& call);
void ServeDetokenize(const GatewayParts& parts, const SharedCall& call);
// 200 while a prefill and a decode worker of some model are attached and nothing shuts down; else 503, and why.
void ServeHealth(const GatewayParts& parts, const SharedCall& call);
void ServeVersion(const GatewayParts& parts, const SharedCall& call);
void ServeMetricsText(const GatewayParts& parts, const SharedCall& call);

}  // namespace baton
