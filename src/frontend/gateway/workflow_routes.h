// Calls about a workflow as a whole.
#pragma once

#include "frontend/gateway/parts.h"

namespace baton {

inline constexpr std::string_view kWorkflowPath = "/v1/workflows/";

// Cancels the live requests of the workflow that the path names. The body is empty or a
// CancelWorkflowRequest without a name. Answers {"cancelled_requests": N}.
void ServeCancelWorkflow(const GatewayParts& parts, const SharedCall& call);

}  // namespace baton
