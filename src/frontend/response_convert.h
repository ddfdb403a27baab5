// Converts the outcome of a request to the messages that gRPC and HTTP clients receive.
#pragma once

#include "inference.pb.h"
#include "request/answers.h"
#include "router/request.h"

namespace baton {

v1::Final ToFinal(const RequestOutcome& outcome);
// Appends the update to the response.
void AddTo(v1::GenerateResponse& response, const TokenUpdate& update);
v1::PrefillOnlyResponse ToPrefillOnly(const RequestId& id, const RequestOutcome& outcome);

}  // namespace baton
