// What clients are told of their requests, whichever front they came by.
#pragma once

#include "inference.pb.h"
#include "request/answers.h"
#include "router/request.h"

namespace baton {

v1::Final ToFinal(const RequestOutcome& outcome);
// Behind what it has.
void AddTo(v1::GenerateResponse& response, const TokenUpdate& update);
v1::PrefillOnlyResponse ToPrefillOnly(const RequestId& id, const RequestOutcome& outcome);

}  // namespace baton
