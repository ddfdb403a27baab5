// The routes for models, tokenizers, health, version and metrics.
#pragma once

#include "frontend/gateway/parts.h"

namespace baton {

void ServeModels(const GatewayParts& parts, const SharedCall& call);
void ServeModel(const GatewayParts& parts, const SharedCall& call);
void ServeTokenize(const GatewayParts& parts, const SharedCall& call);
void ServeDetokenize(const GatewayParts& parts, const SharedCall& call);
// Answers 200 while Router::Readiness is OK for some model and the router does not shut down.
// Otherwise answers 503 with the reason, or without it if API keys are required.
void ServeHealth(const GatewayParts& parts, const SharedCall& call);
void ServeVersion(const GatewayParts& parts, const SharedCall& call);
void ServeMetricsText(const GatewayParts& parts, const SharedCall& call);

}  // namespace baton
